// Linears and the row-wise ops of the normal path.
#include "ops.h"

#include "parallel.h"

namespace samovar {
namespace {

// More rows than this make a block of columns worth queueing for: threads that are slowed down by other processes then
// take fewer. With fewer rows the time is that of reading weights, and one long stretch per thread reads fastest; and
// where the weights are made bf16, the inputs of all rows pass by once per group of blocks, which wants large groups.
constexpr int kQueueRows = kMaxRows;
constexpr int kPiecesPerThread = 8;
// Kernels work on pairs of column blocks: a piece is whole pairs.
constexpr int kPieceMultiple = 4;

Activations prepared(Pool& pool, const Kernels& kernels, const Matrix& matrix, const float* x, int rows, size_t ld,
                     Workspace& workspace) {
  const int32_t stride = activation_stride(matrix.strips);
  Carver measure(nullptr);
  take_activations(measure, {matrix.format}, kernels.bf16_inputs, rows, stride);
  Carver carver(workspace.at_least(measure.used()));
  const Activations act = take_activations(carver, {matrix.format}, kernels.bf16_inputs, rows, stride);
  over_items(pool, rows, matrix.k, [&](int low, int high) { kernels.prepare(matrix, x, ld, low, high - low, act); });
  return act;
}

// work(low, high) over the column blocks (or groups of them) of a linear.
template <class Work>
void over_columns(Pool& pool, const Kernels& kernels, int count, int rows, Work work) {
  if (rows <= kQueueRows || kernels.bf16_inputs || pool.threads() == 1)
    return over_items(pool, count, kWorthTheTeam, work);
  const int pieces = pool.threads() * kPiecesPerThread;
  const int piece = ((count + pieces - 1) / pieces + kPieceMultiple - 1) / kPieceMultiple * kPieceMultiple;
  over_queue(pool, count, piece, [&](int, int low, int high) { work(low, high); });
}

}  // namespace

void linear(Pool& pool, const Kernels& kernels, const Matrix& matrix, const float* x, int rows, size_t ld,
            const float* bias, bool add, float* out, size_t out_ld, Workspace& workspace) {
  if (rows == 0) return;
  const Activations act = prepared(pool, kernels, matrix, x, rows, ld, workspace);
  over_columns(pool, kernels, matrix.blocks, rows, [&](int low, int high) {
    kernels.linear(matrix, act, 0, rows, low, high - low, bias, add, out, out_ld);
  });
}

void linear_swiglu(Pool& pool, const Kernels& kernels, const Matrix& matrix, const float* x, int rows, size_t ld,
                   const float* bias, float* out, size_t out_ld, Workspace& workspace) {
  if (rows == 0) return;
  const Activations act = prepared(pool, kernels, matrix, x, rows, ld, workspace);
  over_columns(pool, kernels, matrix.blocks / 4, rows, [&](int low, int high) {
    kernels.linear_swiglu(matrix, act, 0, rows, low, high - low, bias, out, out_ld);
  });
}

void write_kv(Pool& pool, const Kernels& kernels, const KVPool& kv, const int64_t* slots, const float* k, size_t k_ld,
              const float* v, size_t v_ld, int rows) {
  over_items(pool, rows, static_cast<size_t>(2) * kv.kv_heads * kv.head_dim, [&](int low, int high) {
    for (int row = low; row < high; row++) kernels.write_kv(kv, slots[row], k + row * k_ld, v + row * v_ld);
  });
}

void rope_rows(Pool& pool, const Kernels& kernels, float* x, size_t ld, int rows, int heads, int head_dim,
               const int64_t* positions, const float* cos, const float* sin) {
  over_items(pool, rows, static_cast<size_t>(heads) * head_dim, [&](int low, int high) {
    for (int row = low; row < high; row++) {
      const size_t at = static_cast<size_t>(positions[row]) * (head_dim / 2);
      for (int head = 0; head < heads; head++) {
        kernels.rope(x + row * ld + static_cast<size_t>(head) * head_dim, cos + at, sin + at, head_dim);
      }
    }
  });
}

void rms_norm(Pool& pool, const Kernels& kernels, const float* x, size_t ld, const float* weight, float eps, int rows,
              int n, float* out, size_t out_ld) {
  over_items(pool, rows, n, [&](int low, int high) {
    kernels.rms_norm(x + low * ld, ld, weight, eps, high - low, n, out + low * out_ld, out_ld);
  });
}

void embed(Pool& pool, const Kernels& kernels, const Matrix& matrix, const int64_t* ids, int rows, float* out,
           size_t out_ld) {
  over_items(pool, rows, matrix.k, [&](int low, int high) {
    for (int row = low; row < high; row++) {
      kernels.dequantize_row(matrix, static_cast<int>(ids[row]), out + row * out_ld);
    }
  });
}

void argmax(Pool& pool, const Kernels& kernels, const float* x, size_t ld, int rows, int n, int32_t* index,
            bool* finite) {
  over_items(pool, rows, n, [&](int low, int high) {
    for (int row = low; row < high; row++) index[row] = kernels.argmax(x + row * ld, n, finite + row);
  });
}

}  // namespace samovar
