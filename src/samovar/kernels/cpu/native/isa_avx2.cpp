// x86-64 with AVX2, FMA and F16C.
#define SAMOVAR_ISA_NAMESPACE avx2
#define SAMOVAR_ISA_TABLE table_avx2
#define SAMOVAR_ISA_NAME "avx2"
#include "table.inl.h"
