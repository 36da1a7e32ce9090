// Attention's chunks of a context: how many a position sees, and the merge of their results, in the one order that all
// paths keep.
#pragma once

#include <cmath>
#include <cstring>

#include "kernels.h"

namespace samovar {

constexpr int kMaxHeadDim = 256;
// Rows (queries x query heads of a KV head) of one attend_chunk call.
constexpr int kMaxAttendRows = 64;
// Those of one `attend` call.
constexpr int kMaxContextRows = 192;

inline int chunks_of(int visible_tokens) { return (visible_tokens + kChunkTokens - 1) / kChunkTokens; }

// out [head_dim] of one query and head: its results of `chunks` chunks merged in order and normalised. The result of
// chunk c is at partial[c * step] and values[c * step * head_dim]; reads only.
inline void merge_chunks(const Kernels& kernels, const Partial* partial, const float* values, size_t step, int chunks,
                         int head_dim, float* out) {
  if (chunks == 1) return kernels.finish(*partial, values, head_dim, out);
  alignas(64) float running[kMaxHeadDim];
  Partial whole = *partial;
  std::memcpy(running, values, static_cast<size_t>(head_dim) * sizeof(float));
  for (int chunk = 1; chunk < chunks; chunk++) {
    kernels.merge(&whole, running, partial[chunk * step], values + chunk * step * head_dim, head_dim);
  }
  kernels.finish(whole, running, head_dim, out);
}

}  // namespace samovar
