// Plain C++ for any CPU; on x86-64 the compiler uses SSE2.
#define SAMOVAR_ISA_NAMESPACE scalar
#define SAMOVAR_ISA_TABLE table_scalar
#define SAMOVAR_ISA_NAME "scalar"
#include "table.inl.h"
