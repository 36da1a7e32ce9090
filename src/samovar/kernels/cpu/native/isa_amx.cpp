// x86-64 with AVX-512 (VNNI, BF16) and AMX tiles for int8 and bf16.
#define SAMOVAR_ISA_NAMESPACE amx
#define SAMOVAR_ISA_TABLE table_amx
#define SAMOVAR_ISA_NAME "amx"
#include "table.inl.h"
