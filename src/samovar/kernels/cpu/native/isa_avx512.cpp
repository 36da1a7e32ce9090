// x86-64 with AVX-512 F, BW, DQ, VL and VNNI.
#define SAMOVAR_ISA_NAMESPACE avx512
#define SAMOVAR_ISA_TABLE table_avx512
#define SAMOVAR_ISA_NAME "avx512"
#include "table.inl.h"
