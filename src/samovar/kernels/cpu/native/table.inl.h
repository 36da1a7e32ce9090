// The table of the instruction set that includes this. SAMOVAR_ISA_TABLE names it, SAMOVAR_ISA_NAME is what users type.
#pragma once

#include "kernels.h"

// 64-byte vectors in arguments have no fixed ABI without AVX-512; all functions that take them are inlined here.
#pragma GCC diagnostic ignored "-Wpsabi"
#if defined(__GNUC__) && !defined(__clang__)
// gcc's own AVX-512 headers leave operands undefined on purpose and warn about it.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include "attention.inl.h"
#include "elementwise.inl.h"
#include "linear.inl.h"
#include "peaks.inl.h"

namespace samovar {

namespace isa = SAMOVAR_ISA_NAMESPACE;

extern const Kernels SAMOVAR_ISA_TABLE;
const Kernels SAMOVAR_ISA_TABLE = {
    SAMOVAR_ISA_NAME,    isa::kBf16Inputs, isa::prepare,  isa::linear,       isa::linear_swiglu,
    isa::dequantize_row, isa::rms_norm,    isa::rope,     isa::write_kv,     isa::attend_chunk,
    isa::attend,         isa::merge,       isa::finish,   isa::argmax,   isa::exponentials, isa::multiply,
};

}  // namespace samovar
