// The products of attention over an int8 pool with AMX tiles: 16 rows (query x head) by 16 tokens or dimensions.
#pragma once

#include "amx.inl.h"

namespace samovar::SAMOVAR_ISA_NAMESPACE {

constexpr int kByteRowsAtOnce = 16;
constexpr int kFewAttendedRows = 5;  // for which vector instructions are faster
constexpr int kSumTokens = 64;  // of one product

// Tiles 0 to 3 hold the sums of the high and the low bytes of 16 columns, then of 16 more. Scores: queries (4) times keys
// (5), `depth` dimensions of each. Sums: weights (6) [rows][64 tokens] times values (7) [16 quads of tokens][16 dims].
struct TileSums {
  alignas(64) int32_t of[4][kByteRowsAtOnce][kLanes];

  static void zero() {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  void take() {
    _tile_stored(0, of[0], sizeof of[0][0]);
    _tile_stored(1, of[1], sizeof of[0][0]);
    _tile_stored(2, of[2], sizeof of[0][0]);
    _tile_stored(3, of[3], sizeof of[0][0]);
    tiles_will_read(of);  // and the compiler must not read before they are stored
  }
};

// dots [rows][256] of rows from `row` with the first `tiles` tiles of keys.
inline void score_bytes(const ByteCall& call, int row, int rows, int tiles, int depth, TileSums& sums, float* dots) {
  const int head_dim = call.chunk.head_dim;
  const uint8_t* high = call.queries.high + row * head_dim;
  const uint8_t* low = call.queries.low + row * head_dim;
  tiles_will_read(high);
  for (int t = 0; t < tiles; t += 2) {
    const bool two = t + 1 < tiles;
    const uint8_t *first = call.stored[t], *second = call.stored[two ? t + 1 : t];
    for (int next = t; row == 0 && next < t + 2; next++) call.ask(next + kByteTilesAhead);
    TileSums::zero();
    for (int dim = 0; dim < head_dim; dim += depth) {
      const int at = dim * kTileTokens;
      _tile_loadd(4, high + dim, head_dim);
      _tile_loadd(5, first + at, 64);
      _tile_dpbssd(0, 4, 5);
      _tile_loadd(5, second + at, 64);
      _tile_dpbssd(2, 4, 5);
      _tile_loadd(4, low + dim, head_dim);
      _tile_dpbssd(3, 4, 5);
      _tile_loadd(5, first + at, 64);
      _tile_dpbssd(1, 4, 5);
    }
    sums.take();
    for (int r = 0; r < rows; r++) {
      float* to = dots + r * kChunkTokens;
      store_dots(call, row + r, t, load<Ints>(sums.of[0][r]), load<Ints>(sums.of[1][r]), to);
      if (two) store_dots(call, row + r, t + 1, load<Ints>(sums.of[2][r]), load<Ints>(sums.of[3][r]), to);
    }
  }
}

// out [rows][head_dim] = weights [rows][256] times the values of `tokens` (a multiple of 64), which lie at `copy`, tile
// after tile.
inline void sum_bytes(const ByteCall& call, int rows, int tokens, const ByteRows& weights, const float* weight_scales,
                      const uint8_t* copy, TileSums& sums, float* out) {
  const int head_dim = call.chunk.head_dim;
  tiles_will_read(weights.high);
  for (int dim = 0; dim < head_dim; dim += 2 * kLanes) {
    TileSums::zero();
    for (int at = 0; at < tokens; at += kSumTokens) {
      const uint8_t* first = copy + static_cast<size_t>(at) * head_dim + 4 * dim;
      const uint8_t* second = first + 4 * kLanes;
      _tile_loadd(6, weights.high + at, kChunkTokens);
      _tile_loadd(7, first, 4 * head_dim);
      _tile_dpbusd(0, 6, 7);
      _tile_loadd(7, second, 4 * head_dim);
      _tile_dpbusd(2, 6, 7);
      _tile_loadd(6, weights.low + at, kChunkTokens);
      _tile_dpbusd(3, 6, 7);
      _tile_loadd(7, first, 4 * head_dim);
      _tile_dpbusd(1, 6, 7);
    }
    sums.take();
    for (int r = 0; r < rows; r++) {
      float* to = out + static_cast<size_t>(r) * head_dim + dim;
      store_sums(load<Ints>(sums.of[0][r]), load<Ints>(sums.of[1][r]), weight_scales[r], to);
      store_sums(load<Ints>(sums.of[2][r]), load<Ints>(sums.of[3][r]), weight_scales[r], to + kLanes);
    }
  }
}

// Four tiles of values side by side make the 64 tokens of one product. Behind the last one zeros.
inline void copy_values(const ByteCall& call, uint8_t* copy) {
  const size_t bytes = call.elements();
  for (int t = 0; t < call.tiles; t++) {
    call.ask_next(t);
    std::memcpy(copy + t * bytes, call.values(t), bytes);
  }
  const int padded = (call.tiles + 3) / 4 * 4;
  std::memset(copy + call.tiles * bytes, 0, (padded - call.tiles) * bytes);
}

// Rows do not mix in tiles: what rows behind the last one hold goes nowhere. 96 KB of stack.
inline void attend_in_tiles(const ByteCall& call, Partial* partial, float* values) {
  const int head_dim = call.chunk.head_dim, all_rows = call.chunk.rows;
  alignas(64) uint8_t copy[kChunkTokens * kMaxHeadDim];
  alignas(64) float dots[kByteRowsAtOnce * kChunkTokens];
  alignas(64) uint8_t high[kByteRowsAtOnce * kChunkTokens], low[kByteRowsAtOnce * kChunkTokens];
  float weight_scales[kByteRowsAtOnce];
  TileSums sums;
  const ByteRows weights{high, low};
  const int depth = head_dim % 64 == 0 ? 64 : 32;
  const uint8_t tile_rows = static_cast<uint8_t>(all_rows < kByteRowsAtOnce ? all_rows : kByteRowsAtOnce);
  const TileShape sum{tile_rows, 64}, query{tile_rows, static_cast<uint16_t>(depth)};
  const TileShape shapes[8] = {sum, sum, sum, sum, query, {static_cast<uint8_t>(depth / 4), 64}, sum, {16, 64}};
  Tiles configured(shapes);
  for (int row = 0; row < all_rows; row += kByteRowsAtOnce) {
    const int rows = all_rows - row < kByteRowsAtOnce ? all_rows - row : kByteRowsAtOnce;
    const int tiles = call.chunk.tiles_before(row + rows);
    score_bytes(call, row, rows, tiles, depth, sums, dots);
    const int tokens = (tiles * kTileTokens + kSumTokens - 1) / kSumTokens * kSumTokens;
    weigh_bytes_of(call, row, rows, tokens, dots, weights, weight_scales, partial + row);
    if (row == 0) copy_values(call, copy);
    sum_bytes(call, rows, tokens, weights, weight_scales, copy, sums, values + static_cast<size_t>(row) * head_dim);
  }
}

}  // namespace samovar::SAMOVAR_ISA_NAMESPACE
