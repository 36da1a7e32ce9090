// Attention over a bf16 pool with AMX tiles: 16 rows (query x head) by 16 tokens or dimensions. Even one row goes through
// tiles, since their rounding differs from that of vector instructions. A block of 16 rows stays in the core's first-level
// cache from its dots to its sums. A chunk's values are copied once for all rows of a call, so that a product takes 32
// tokens: with 16 it would take as long.
#pragma once

#include "amx.inl.h"
#include "attention_amx_weigh.inl.h"

namespace samovar::SAMOVAR_ISA_NAMESPACE {

constexpr int kScoredDims = 32;  // of one product

// A call's rows of queries and a chunk's values as tiles read them: cells one behind the other.
struct TileOperands {
  alignas(64) uint16_t queries[kMaxContextRows * kMaxHeadDim];  // [16 rows each][head_dim / 32][16][32]
  alignas(64) uint16_t values[kChunkTokens * kMaxHeadDim];      // [32 tokens each][head_dim / 16][16 pairs][16][2]
  alignas(64) uint16_t ones[kCellHalves];

  TileOperands() {
    for (uint16_t& one : ones) one = 0x3f80;
  }
};

// What a block comes to over a chunk. The total is one more dimension, of values that are all 1, in every column of the
// last cell.
struct BlockResult {
  alignas(64) float dots[kChunkTiles * kCellFloats];           // [16 tokens each][16 rows][16]; then weights
  alignas(64) float sums[kCellRows * (kMaxHeadDim + kLanes)];  // [head_dim / 16 + 1][16 rows][16], not yet normalised
  alignas(64) float top[kCellRows];

  float total(int row, int head_dim) const { return sums[kCellRows * head_dim + row * kLanes]; }
};

// Tiles 0 to 3 hold dots or sums [rows][16], 4 those that are totals, 5 rows of queries or weights [rows][32], 6 and 7
// keys or values [16 pairs][16][2].
class AttentionTiles {
 public:
  explicit AttentionTiles(int rows) : tiles_(shapes(static_cast<uint8_t>(rows < kCellRows ? rows : kCellRows)).of) {}

 private:
  struct Shapes {
    TileShape of[8];
  };
  static Shapes shapes(uint8_t rows) {
    const TileShape mine{rows, 64};
    return {{mine, mine, mine, mine, mine, mine, {}, {}}};
  }
  Tiles tiles_;
};

inline void round_to_cells(const ChunkCall& call, const float* q, size_t q_ld, uint16_t* cells) {
  for (int row = 0; row < call.rows; row++) {
    const float* x = q + row / call.heads * q_ld + row % call.heads * static_cast<size_t>(call.head_dim);
    uint16_t* to = cells + row / kCellRows * kCellRows * call.head_dim + row % kCellRows * kScoredDims;
    for (int dim = 0; dim < call.head_dim; dim += kScoredDims, to += kCellHalves) {
      store(to, _mm512_cvtne2ps_pbh(load<__m512>(x + dim + kLanes), load<__m512>(x + dim)));
    }
  }
}

// A tile of values, of which `seen` tokens count, becomes half the pairs of a row of cells. Behind the last one come
// zeros: values there are left over from another owner and may be NaN, which even a zero weight keeps.
inline void copy_tile(const uint16_t* from, int seen, int head_dim, uint16_t* to) {
  for (int token = 0; token < kTileTokens; token += 2, from += 2 * head_dim, to += 2 * kLanes) {
    const __mmask32 mask = token + 2 <= seen ? 0xffffffff : token < seen ? 0x55555555 : 0;
    for (int dim = 0; dim < head_dim; dim += kLanes) {
      store(to + dim / kLanes * kCellHalves, _mm512_maskz_loadu_epi16(mask, from + 2 * dim));
    }
  }
}

// Asks for `next` meanwhile, where it is given.
inline void copy_values(const ChunkCall& call, int visible, const NextKeys* next, uint16_t* cells) {
  const int of_step = kStepTokens * call.head_dim;
  for (int t = 0; t < call.tiles; t++) {
    if (next != nullptr && t < next->tiles) prefetch(next->keys[t], 2 * kTileTokens * static_cast<size_t>(call.head_dim));
    copy_tile(call.values[t], visible - t * kTileTokens, call.head_dim, cells + t / 2 * of_step + t % 2 * kCellHalves / 2);
  }
  if (call.tiles % 2 == 0) return;
  copy_tile(call.values[0], 0, call.head_dim, cells + call.tiles / 2 * of_step + kCellHalves / 2);
}

inline void zero_results() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

// Dots of 16 rows of q with tiles of keys.
inline void score_tiles(const uint16_t* const* keys, int tiles, int head_dim, const uint16_t* q, float* dots) {
  for (int t = 0; t < tiles; t += 4, dots += 4 * kCellFloats) {
    // Behind the last tile the same one again: its dots are not read.
    const int left = tiles - t;
    const uint16_t *first = keys[t], *second = keys[left > 1 ? t + 1 : t];
    const uint16_t *third = keys[left > 2 ? t + 2 : t], *fourth = keys[left > 3 ? t + 3 : t];
    zero_results();
    for (int cell = 0; cell < head_dim * kLanes; cell += kCellHalves) {
      _tile_loadd(5, q + cell, 64);
      _tile_stream_loadd(6, first + cell, 64);
      _tile_dpbf16ps(0, 5, 6);
      _tile_stream_loadd(7, second + cell, 64);
      _tile_dpbf16ps(1, 5, 7);
      if (left <= 2) continue;
      _tile_stream_loadd(6, third + cell, 64);
      _tile_dpbf16ps(2, 5, 6);
      _tile_stream_loadd(7, fourth + cell, 64);
      _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, dots, 64);
    _tile_stored(1, dots + kCellFloats, 64);
    if (left <= 2) return;
    _tile_stored(2, dots + 2 * kCellFloats, 64);
    _tile_stored(3, dots + 3 * kCellFloats, 64);
  }
}

// Sums [Cells][16 rows][16] of weights times the values of `steps` times 32 tokens; with `Last` of one more cell, the
// weights themselves.
template <int Cells, bool Last>
void sum_cells(const float* weights, int steps, int head_dim, const uint16_t* values, const uint16_t* ones, float* sums) {
  zero_results();
  if (Last) _tile_zero(4);
  for (int step = 0; step < steps; step++, weights += 2 * kCellFloats, values += kStepTokens * head_dim) {
    _tile_loadd(5, weights, 64);
    _tile_stream_loadd(6, values, 64);
    _tile_dpbf16ps(0, 5, 6);
    _tile_stream_loadd(7, values + kCellHalves, 64);
    _tile_dpbf16ps(1, 5, 7);
    if (Cells > 2) {
      _tile_stream_loadd(6, values + 2 * kCellHalves, 64);
      _tile_dpbf16ps(2, 5, 6);
      _tile_stream_loadd(7, values + 3 * kCellHalves, 64);
      _tile_dpbf16ps(3, 5, 7);
    }
    if (Last) {
      _tile_loadd(6, ones, 64);
      _tile_dpbf16ps(4, 5, 6);
    }
  }
  _tile_stored(0, sums, 64);
  _tile_stored(1, sums + kCellFloats, 64);
  if (Cells > 2) {
    _tile_stored(2, sums + 2 * kCellFloats, 64);
    _tile_stored(3, sums + 3 * kCellFloats, 64);
  }
  if (Last) _tile_stored(4, sums + Cells * kCellFloats, 64);
}

inline void sum_tiles(const float* weights, int steps, int head_dim, const TileOperands& operands, float* sums) {
  const uint16_t* values = operands.values;
  int cells = head_dim / kLanes;
  for (; cells > 4; cells -= 4, values += 4 * kCellHalves, sums += 4 * kCellFloats) {
    sum_cells<4, false>(weights, steps, head_dim, values, operands.ones, sums);
  }
  (cells == 4 ? sum_cells<4, true> : sum_cells<2, true>)(weights, steps, head_dim, values, operands.ones, sums);
}

// Rows [row, row + rows) of a call, at most 16, over one chunk. Rows do not mix in tiles: what stands behind the last one
// goes nowhere but into the result's rows there.
inline void attend_block(const ChunkCall& call, int row, int rows, const TileOperands& operands, BlockResult* result) {
  const int tiles = call.tiles_before(row + rows), even_tiles = (tiles + 1) / 2 * 2;
  tiles_will_read(&operands);
  score_tiles(call.keys, tiles, call.head_dim, operands.queries + row * call.head_dim, result->dots);
  tiles_will_read(result);
  weigh_block(call.visible + row, rows, even_tiles, call.scale, result->dots, result->top);
  tiles_will_read(result);
  sum_tiles(result->dots, even_tiles / 2, call.head_dim, operands, result->sums);
  tiles_will_read(result);
}

inline int rows_of_block(const ChunkCall& call, int row) {
  return call.rows - row < kCellRows ? call.rows - row : kCellRows;
}

// 260 KB of stack.
inline void attend_tiles(const ChunkCall& call, const NextKeys& next, const float* q, size_t q_ld, Partial* partial,
                         float* values) {
  TileOperands operands;
  BlockResult result;
  round_to_cells(call, q, q_ld, operands.queries);
  copy_values(call, call.visible[call.rows - 1], &next, operands.values);
  AttentionTiles configured(call.rows);
  for (int low = 0; low < call.rows; low += kCellRows) {
    attend_block(call, low, rows_of_block(call, low), operands, &result);
    for (int r = 0; r < rows_of_block(call, low); r++, values += call.head_dim) {
      partial[low + r] = {result.top[r], result.total(r, call.head_dim)};
      const float* from = result.sums + r * kLanes;
      for (int dim = 0; dim < call.head_dim; dim += kLanes, from += kCellFloats) store(values + dim, load<Floats>(from));
    }
  }
}

}  // namespace samovar::SAMOVAR_ISA_NAMESPACE

#include "attention_amx_context.inl.h"
