// Attention over the whole context of some rows with AMX tiles, chunk after chunk: what the rows share is prepared once,
// and a block's result is merged while it lies in the core's first-level cache.
#pragma once

#include "attention_amx.inl.h"

namespace samovar::SAMOVAR_ISA_NAMESPACE {

// What the chunks before have come to.
struct RunningResult {
  alignas(64) float values[kMaxContextRows * kMaxHeadDim];  // [16 rows each][head_dim / 16][16][16]
  alignas(64) float top[kMaxContextRows];
  alignas(64) float total[kMaxContextRows];

  float* block(int row, int head_dim) { return values + row * head_dim; }
};

inline void begin_block(const BlockResult& block, int row, int head_dim, RunningResult* into) {
  std::memcpy(into->block(row, head_dim), block.sums, sizeof(float) * kCellRows * head_dim);
  std::memcpy(into->top + row, block.top, sizeof block.top);
  for (int r = 0; r < kCellRows; r++) into->total[row + r] = block.total(r, head_dim);
}

// `merge` for the rows of a block, whose exponentials are found together: the same bits.
inline void merge_block(const BlockResult& block, int row, int rows, int head_dim, RunningResult* into) {
  const Floats before_top = load<Floats>(into->top + row), added_top = load<Floats>(block.top);
  const Floats top = larger(before_top, added_top);
  alignas(64) float before[kCellRows], added[kCellRows];
  store(before, exp(before_top - top));
  store(added, exp(added_top - top));
  for (int r = 0; r < rows; r++) {
    const float total = block.total(r, head_dim);
    if (total == 0.0f) continue;
    into->top[row + r] = top[r];
    into->total[row + r] = into->total[row + r] * before[r] + total * added[r];
    float* values = into->block(row, head_dim) + r * kLanes;
    const float* more = block.sums + r * kLanes;
    for (int cell = 0; cell < head_dim / kLanes; cell++, values += kCellFloats, more += kCellFloats) {
      store(values, fma(load<Floats>(more), all(added[r]), load<Floats>(values) * all(before[r])));
    }
  }
}

// As `attend` of the table. 550 KB of stack.
inline __attribute__((noinline)) void attend_in_tiles(const KVPool& pool, const int64_t* table, int kv_head,
                                                      const float* q, size_t q_ld, int heads, int queries, int start,
                                                      float scale, float* out, size_t out_ld) {
  ChunkCall call(pool.head_dim, heads, queries, scale);
  TileOperands operands;
  BlockResult result;
  RunningResult running;
  const int head_dim = pool.head_dim;
  round_to_cells(call, q, q_ld, operands.queries);
  AttentionTiles configured(call.rows);
  for (int chunk = 0; chunk < chunks_of(start + queries); chunk++) {
    call.see(start + 1 - chunk * kChunkTokens);
    const int visible = call.visible[call.rows - 1];
    find_tiles(pool, table, kv_head, chunk, visible, &call);
    copy_values(call, visible, nullptr, operands.values);
    for (int row = 0; row < call.rows; row += kCellRows) {
      const int rows = rows_of_block(call, row);
      if (call.visible[row + rows - 1] == 0) continue;
      attend_block(call, row, rows, operands, &result);
      if (chunk == 0) {
        begin_block(result, row, head_dim, &running);
      } else {
        merge_block(result, row, rows, head_dim, &running);
      }
    }
  }
  for (int row = 0; row < call.rows; row++) {
    float* to = out + row / heads * out_ld + row % heads * static_cast<size_t>(head_dim);
    const float* values = running.block(row / kCellRows * kCellRows, head_dim) + row % kCellRows * kLanes;
    const Floats total = all(running.total[row]);
    for (int dim = 0; dim < head_dim; dim += kLanes, values += kCellFloats) {
      store(to + dim, load<Floats>(values) / total + 0.0f);
    }
  }
}

}  // namespace samovar::SAMOVAR_ISA_NAMESPACE
