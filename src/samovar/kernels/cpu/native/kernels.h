// What an instruction set provides: one table of functions, the same arithmetic for one row or many. Every function is
// called by one thread for a range of the work; ranges never overlap in what they write. For one instruction set the
// bits of a row depend on nothing but that row's inputs.
#pragma once

#include "layout.h"

namespace samovar {

// One chunk's share of a row's attention, before normalising: `top` the largest score, `total` the sum of
// exp(score - top), and the weighted values [head_dim] kept by the caller beside it.
struct Partial {
  float top;
  float total;
};

struct Kernels {
  const char* name;
  // Whether quantised weights are rounded to bf16 and multiplied with inputs rounded likewise (Activations::b), rather
  // than whole numbers with int8 inputs.
  bool bf16_inputs;

  // x [rows from row0][k], row stride ld -> act rows [row0, row0 + rows), zero padding up to strips * 64.
  void (*prepare)(const Matrix& matrix, const float* x, size_t ld, int row0, int rows, const Activations& act);

  // out[r][c] = (add ? out[r][c] : 0) + (sum over k, then + bias[c] if bias); for rows [row0, row0 + rows) and column
  // blocks [block0, block0 + blocks). out has row stride out_ld; columns >= matrix.n are not written.
  void (*linear)(const Matrix& matrix, const Activations& act, int row0, int rows, int block0, int blocks,
                 const float* bias, bool add, float* out, size_t out_ld);

  // As linear for a matrix whose blocks alternate in pairs [2 gate blocks][2 up blocks]...: writes
  // silu(gate) * up for groups [group0, group0 + groups) of 32 hidden columns, each made of 4 matrix blocks.
  void (*linear_swiglu)(const Matrix& matrix, const Activations& act, int row0, int rows, int group0, int groups,
                        const float* bias, float* out, size_t out_ld);

  // Row `row` of a matrix as f32 [k] (embedding).
  void (*dequantize_row)(const Matrix& matrix, int row, float* out);

  // out[r][i] = x[r][i] * rsqrt(mean(x[r]^2) + eps) * weight[i]; sums in a fixed order.
  void (*rms_norm)(const float* x, size_t ld, const float* weight, float eps, int rows, int n, float* out, size_t out_ld);

  // x [head_dim] in place: dimension i turns with i + head_dim / 2; cos, sin [head_dim / 2].
  void (*rope)(float* x, const float* cos, const float* sin, int head_dim);

  // Rounds one token's k, v [kv_heads][head_dim] to bf16 and writes them at pool slot (block * block_tokens + offset).
  void (*write_kv)(const KVPool& pool, int64_t slot, const float* k, const float* v);

  // Attention of consecutive queries of one sequence over one chunk, for the query heads of one KV head.
  // q: query i, head g at q + i * q_ld + g * head_dim, already rotated; query i stands at position start + i and sees
  // positions [chunk * 256, min((chunk + 1) * 256, start + i + 1)); queries that see nothing get top = -inf, total = 0,
  // values 0. partial [queries][heads]; values [queries][heads][head_dim]. queries * heads <= 64.
  void (*attend_chunk)(const KVPool& pool, const int64_t* table, int kv_head, int chunk, const float* q, size_t q_ld,
                       int heads, int queries, int start, float scale, Partial* partial, float* values);

  // The same over the whole context that the queries see, its chunks merged in order and normalised: out [queries] with
  // row stride out_ld, of [heads][head_dim].
  void (*attend)(const KVPool& pool, const int64_t* table, int kv_head, const float* q, size_t q_ld, int heads,
                 int queries, int start, float scale, float* out, size_t out_ld);

  // Merges chunk results in order of chunk into (into, into_values): the running result of chunks before.
  void (*merge)(Partial* into, float* into_values, const Partial& chunk, const float* chunk_values, int head_dim);
  // out = values / total.
  void (*finish)(const Partial& whole, const float* values, int head_dim, float* out);

  // Index of the first largest value, and whether all are finite.
  int (*argmax)(const float* x, int n, bool* finite);

  // out[i] = exp((x[i] - top) * factor), for x <= top; -inf gives 0.
  void (*exponentials)(const float* x, int n, float top, float factor, float* out);

  // For benchmarks: products as the linears make them, int8 or bf16, from registers alone. Returns the operations, two
  // per multiply-add.
  int64_t (*multiply)(bool int8, int64_t repeats);
};

// The tables this build holds, best first where the CPU can run them; nullptr-terminated.
const Kernels* const* kernels_available();
// nullptr when there is none of that name or the CPU lacks it.
const Kernels* kernels_named(const char* name);

}  // namespace samovar
