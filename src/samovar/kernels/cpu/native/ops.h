// The normal path: each op split over a pool of threads, one call after the other. Scratch comes from a workspace that
// the caller owns and hands to one call at a time. Shapes are the caller's to check.
#pragma once

#include "kernels.h"
#include "pool.h"
#include "workspace.h"

namespace samovar {

// out[r] = (add ? out[r] : 0) + matrix x[r] + bias for `rows` rows; strides in elements. bias may be null.
void linear(Pool& pool, const Kernels& kernels, const Matrix& matrix, const float* x, int rows, size_t ld,
            const float* bias, bool add, float* out, size_t out_ld, Workspace& workspace);

// The matrix holds [2 gate blocks][2 up blocks]... and its bias likewise; out[r] has matrix.n / 2 columns.
void linear_swiglu(Pool& pool, const Kernels& kernels, const Matrix& matrix, const float* x, int rows, size_t ld,
                   const float* bias, float* out, size_t out_ld, Workspace& workspace);

// Consecutive queries of one sequence: rows [first, first + count) of q and out, at positions from `start` on. The
// table covers start + count positions, all of them written.
struct AttentionRow {
  int32_t first;
  int32_t count;
  int32_t start;
  const int64_t* table;
};

// q and out [tokens][heads][head_dim] with row strides; heads is a multiple of pool.kv_heads, at most 64 times as many.
void attention(Pool& pool, const Kernels& kernels, const KVPool& kv, const float* q, size_t q_ld,
               const AttentionRow* rows, int row_count, int heads, float scale, float* out, size_t out_ld,
               Workspace& workspace);

// k, v [rows][kv_heads][head_dim] with row strides.
void write_kv(Pool& pool, const Kernels& kernels, const KVPool& kv, const int64_t* slots, const float* k, size_t k_ld,
              const float* v, size_t v_ld, int rows);

// x [rows][heads][head_dim] in place; cos, sin [positions][head_dim / 2].
void rope_rows(Pool& pool, const Kernels& kernels, float* x, size_t ld, int rows, int heads, int head_dim,
               const int64_t* positions, const float* cos, const float* sin);

void rms_norm(Pool& pool, const Kernels& kernels, const float* x, size_t ld, const float* weight, float eps, int rows,
              int n, float* out, size_t out_ld);

// out[r] = row ids[r] of the matrix as f32.
void embed(Pool& pool, const Kernels& kernels, const Matrix& matrix, const int64_t* ids, int rows, float* out,
           size_t out_ld);

// Per row the index of the first largest value, and whether all values are finite.
void argmax(Pool& pool, const Kernels& kernels, const float* x, size_t ld, int rows, int n, int32_t* index,
            bool* finite);

}  // namespace samovar
