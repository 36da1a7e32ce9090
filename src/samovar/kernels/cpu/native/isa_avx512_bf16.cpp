// x86-64 with AVX-512 F, BW, DQ, VL, VNNI and BF16.
#define SAMOVAR_ISA_NAMESPACE avx512_bf16
#define SAMOVAR_ISA_TABLE table_avx512_bf16
#define SAMOVAR_ISA_NAME "avx512_bf16"
#include "table.inl.h"
