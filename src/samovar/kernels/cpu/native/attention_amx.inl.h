// Attention over one chunk with AMX tiles: 16 rows (query x head) by 16 tokens or dimensions. Even one row goes through
// tiles, since their rounding differs from that of vector instructions. Scores, weights and sums are separate phases:
// vector instructions run at half their speed while tiles are multiplied, so mixing them gains nothing.
#pragma once

#include "amx.inl.h"
#include "attention_rows.inl.h"

namespace samovar::SAMOVAR_ISA_NAMESPACE {

constexpr int kRowsAtOnce = 16;
constexpr int kGroupsAtOnce = 2;  // that share each load of keys and values
constexpr int kScoredDims = 32;   // of one product

// Tiles 0 to 3 hold results. Scores: queries (4) [16 rows][32 dims] times keys (5) [16 pairs of dims][16 tokens].
// Sums: weights (6) [16 rows][16 tokens] times values (7) [8 pairs of tokens][16 dims].
constexpr TileShape kAttentionTiles[8] = {{}, {}, {}, {}, {}, {}, {16, 32}, {8, 64}};

// How far ahead of its use a tile of keys or values is asked for when it is read once: some 8 KB.
constexpr int kTilesAhead = 4;

inline void prefetch_tile(const uint16_t* tile, int head_dim) {
  for (int at = 0; at < kTileTokens * head_dim; at += 32) __builtin_prefetch(tile + at);
}

// dots [16 * Groups][256] of rows of q with the first `tiles` tiles of keys. Keys are loaded past the first-level cache,
// where they would push the dots out before these are read.
template <int Groups>
void score_tiles(const ChunkCall& call, int tiles, const uint16_t* q, float* dots) {
  tiles_will_read(q);
  const int stride = call.head_dim * static_cast<int>(sizeof(uint16_t));
  const int dots_stride = kChunkTokens * static_cast<int>(sizeof(float));
  const uint16_t* second_q = q + kRowsAtOnce * call.head_dim;
  for (int t = 0; t < tiles; t += 2) {
    // Behind the last tile the same one again: its dots are not read.
    const uint16_t *first = call.keys[t], *second = call.keys[t + 1 < tiles ? t + 1 : t];
    if (Groups == 1) {
      for (int next = t + kTilesAhead; next < t + kTilesAhead + 2; next++) {
        prefetch_tile(next < tiles ? call.keys[next] : call.values[next - tiles < tiles ? next - tiles : 0],
                      call.head_dim);
      }
    }
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int dim = 0; dim < call.head_dim; dim += kScoredDims) {
      _tile_loadd(4, q + dim, stride);
      _tile_stream_loadd(5, first + dim * kTileTokens, 64);
      _tile_dpbf16ps(0, 4, 5);
      if (Groups == 2) {
        _tile_loadd(4, second_q + dim, stride);
        _tile_dpbf16ps(2, 4, 5);
        _tile_stream_loadd(5, second + dim * kTileTokens, 64);
        _tile_dpbf16ps(3, 4, 5);
        _tile_loadd(4, q + dim, stride);
      } else {
        _tile_stream_loadd(5, second + dim * kTileTokens, 64);
      }
      _tile_dpbf16ps(1, 4, 5);
    }
    float* to = dots + t * kTileTokens;
    _tile_stored(0, to, dots_stride);
    _tile_stored(1, to + kTileTokens, dots_stride);
    if (Groups == 1) continue;
    to += kRowsAtOnce * kChunkTokens;
    _tile_stored(2, to, dots_stride);
    _tile_stored(3, to + kTileTokens, dots_stride);
  }
}

// out [16 * Groups][head_dim] = weights [16 * Groups][256] times the values of the first `tiles` tiles; 64 / Groups
// dimensions at a time.
template <int Groups>
void sum_tiles(const ChunkCall& call, int tiles, const uint16_t* weights, float* out) {
  tiles_will_read(weights);
  const int weights_stride = kChunkTokens * static_cast<int>(sizeof(uint16_t));
  const int values_stride = 2 * call.head_dim * static_cast<int>(sizeof(uint16_t));
  const int out_stride = call.head_dim * static_cast<int>(sizeof(float));
  const uint16_t* second_weights = weights + kRowsAtOnce * kChunkTokens;
  for (int dim = 0; dim < call.head_dim; dim += 4 / Groups * kWidth) {
    const bool wide = Groups == 1 && dim + 4 * kWidth <= call.head_dim;  // 64 dimensions, not 32
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int t = 0; t < tiles; t++) {
      if (Groups == 1 && dim == 0 && t + kTilesAhead < tiles) {
        prefetch_tile(call.values[t + kTilesAhead], call.head_dim);
      }
      const uint16_t* values = call.values[t] + 2 * dim;
      _tile_loadd(6, weights + t * kTileTokens, weights_stride);
      _tile_loadd(7, values, values_stride);
      _tile_dpbf16ps(0, 6, 7);
      if (Groups == 2) {
        _tile_loadd(6, second_weights + t * kTileTokens, weights_stride);
        _tile_dpbf16ps(2, 6, 7);
        _tile_loadd(7, values + 2 * kWidth, values_stride);
        _tile_dpbf16ps(3, 6, 7);
        _tile_loadd(6, weights + t * kTileTokens, weights_stride);
      } else {
        _tile_loadd(7, values + 2 * kWidth, values_stride);
      }
      _tile_dpbf16ps(1, 6, 7);
      if (!wide) continue;
      _tile_loadd(7, values + 4 * kWidth, values_stride);
      _tile_dpbf16ps(2, 6, 7);
      _tile_loadd(7, values + 6 * kWidth, values_stride);
      _tile_dpbf16ps(3, 6, 7);
    }
    float *first = out + dim, *second = Groups == 2 ? first + kRowsAtOnce * call.head_dim : first + 2 * kWidth;
    _tile_stored(0, first, out_stride);
    _tile_stored(1, first + kWidth, out_stride);
    if (Groups == 1 && !wide) continue;
    _tile_stored(2, second, out_stride);
    _tile_stored(3, second + kWidth, out_stride);
  }
}

// Rows do not mix in tiles: what dots and weights of rows behind the last one hold goes nowhere but into `sums`.
// 32 KB of stack for queries, 80 KB for dots, weights and sums.
inline void attend_tiles(const ChunkCall& call, const float* q, size_t q_ld, Partial* partial, float* values) {
  constexpr int kMostRows = kGroupsAtOnce * kRowsAtOnce;
  const int head_dim = call.head_dim;
  alignas(64) uint16_t queries[kMaxRows * kMaxHeadDim];
  alignas(64) float dots[kMostRows * kChunkTokens];
  alignas(64) uint16_t weights[kMostRows * kChunkTokens];
  alignas(64) float sums[kMostRows * kMaxHeadDim];
  round_queries(call, q, q_ld, queries);
  Tiles configured(kAttentionTiles);
  for (int row = 0; row < call.rows; row += kMostRows) {
    const int rows = call.rows - row < kMostRows ? call.rows - row : kMostRows;
    const bool two = rows > kRowsAtOnce;
    const int tiles = call.tiles_before(row + rows);
    (two ? score_tiles<2> : score_tiles<1>)(call, tiles, queries + row * head_dim, dots);
    weigh(call, row, rows, (tiles + 1) / 2 * kStepTokens, dots, weights, partial + row);
    float* to = values + static_cast<size_t>(row) * head_dim;
    float* whole = rows % kRowsAtOnce == 0 ? to : sums;
    (two ? sum_tiles<2> : sum_tiles<1>)(call, tiles, weights, whole);
    if (whole == sums) std::memcpy(to, sums, sizeof(float) * rows * head_dim);
  }
}

}  // namespace samovar::SAMOVAR_ISA_NAMESPACE
