// aarch64 with the dot product instructions.
#define SAMOVAR_ISA_NAMESPACE neon
#define SAMOVAR_ISA_TABLE table_neon
#define SAMOVAR_ISA_NAME "neon"
#include "table.inl.h"
