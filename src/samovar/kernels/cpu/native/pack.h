// Repacking weights, once at load, into the records of layout.h.
#pragma once

#include "layout.h"

namespace samovar {

// How the source rows lie in memory. The quantised ones are GGUF's blocks, row after row.
enum class Source : uint8_t { f32, f16, bf16, q4_0, q4_1, q8_0, q4_k, q6_k };

// Input columns per block of the source: k must be a multiple of it.
int source_group(Source source);
size_t source_row_bytes(Source source, int k);

// A float source packs to f32, bf16 or q8 (rounded here: groups of 32, d = f16(max|w| / 127)); a quantised one to its
// own format (q8_0 to q8), exactly.
bool can_pack(Format format, Source source);

// Of a whole packed matrix [n, k]. The data must be 64-byte aligned.
size_t packed_bytes(Format format, int n, int k);
Matrix packed_matrix(Format format, int n, int k, const uint8_t* data);

// Packs output columns [first, first + count) of a matrix with k inputs: column first + i takes source row rows[i], or
// row i when rows is nullptr. So a fused matrix is packed piece by piece from its parts. `data` must have been filled
// with zeros before the first piece: zero records contribute zero, and padding keeps them. Pieces may be packed at the
// same time by different threads. Requires can_pack and k % source_group == 0.
void pack(Format format, uint8_t* data, int k, int first, int count, Source source, const void* weights,
          const int32_t* rows);

}  // namespace samovar
