// Attention over one chunk with vector instructions: lanes are tokens for scores and dimensions for values; each lane
// of each row has its own accumulator, filled pair after pair, so that blocking changes no bit.
#pragma once

#include "attention_rows.inl.h"

namespace samovar::SAMOVAR_ISA_NAMESPACE {

// Rows and vectors (of kWidth lanes) that are accumulated at once: as many as the registers hold beside the factors.
#if defined(__AVX512BF16__)
constexpr int kBlockRows = 6, kBlockVectors = 4;
#elif defined(__AVX512F__)
constexpr int kBlockRows = 5, kBlockVectors = 4;
#elif defined(__aarch64__)
constexpr int kBlockRows = 4, kBlockVectors = 4;
#else
constexpr int kBlockRows = 2, kBlockVectors = 4;
#endif
constexpr int kBlockLanes = kBlockVectors * kWidth;

// Adds the products of `pairs` pairs: vector v of pair i lies at columns[v] + i * step, row r's two factors at
// rows + r * stride + 2 i. Asks for what lies likewise at `ahead`.
template <int Rows, int Vectors>
__attribute__((always_inline)) inline void add_products(Floats (&sums)[Rows][Vectors],
                                                        const uint16_t* const (&columns)[Vectors],
                                                        const uint16_t* const (&ahead)[Vectors], size_t step,
                                                        const Operand* rows, int stride, int pairs) {
  for (int i = 0; i < pairs; i++) {
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; v += kPieces) __builtin_prefetch(ahead[v] + i * step);
#if defined(__AVX512BF16__)
    __m512bh products[Vectors];
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; v++) products[v] = load<__m512bh>(columns[v] + i * step);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; r++) {
      __m512bh factors = (__m512bh)_mm512_set1_epi32(load<int32_t>(rows + r * stride + 2 * i));
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; v++) {
        sums[r][v] = (Floats)_mm512_dpbf16_ps((__m512)sums[r][v], products[v], factors);
      }
    }
#else
    Floats first[Rows], second[Rows];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; r++) {
      first[r] = all(rows[r * stride + 2 * i]);
      second[r] = all(rows[r * stride + 2 * i + 1]);
    }
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; v++) {
      Words both = load<Words>(columns[v] + i * step);
      Floats low = (Floats)(both << 16), high = (Floats)(both & 0xffff0000u);
#pragma GCC unroll 8
      for (int r = 0; r < Rows; r++) sums[r][v] = fma(second[r], high, fma(first[r], low, sums[r][v]));
    }
#endif
  }
}

// dots [Rows][256] of q [Rows][head_dim] with the first `tiles` tiles of keys.
template <int Rows>
void score_rows(const ChunkCall& call, int tiles, const Operand* q, float* dots) {
  constexpr int kBlockTiles = kBlockLanes / kTileTokens;
  for (int t = 0; t < tiles; t += kBlockTiles) {
    const uint16_t *columns[kBlockVectors], *ahead[kBlockVectors];
    for (int v = 0; v < kBlockVectors; v++) {
      // Behind the last tile the same one again: its dots are not read.
      const int tile = t + v / kPieces, next = tile + kBlockTiles, piece = v % kPieces * 2 * kWidth;
      columns[v] = call.keys[tile < tiles ? tile : tiles - 1] + piece;
      ahead[v] = next < tiles ? call.keys[next] : call.values[next - tiles < tiles ? next - tiles : tiles - 1];
    }
    Floats sums[Rows][kBlockVectors] = {};
    add_products(sums, columns, ahead, 2 * kTileTokens, q, call.head_dim, call.head_dim / 2);
    for (int r = 0; r < Rows; r++) {
      for (int v = 0; v < kBlockVectors; v++) store(dots + r * kChunkTokens + t * kTileTokens + v * kWidth, sums[r][v]);
    }
  }
}

// values [Rows][head_dim], Vectors vectors of them from dimension `dim`: weights [Rows][256] times the tiles' values.
template <int Rows, int Vectors>
void sum_values(const ChunkCall& call, int tiles, const Operand* weights, int dim, float* values) {
  Floats sums[Rows][Vectors] = {};
  for (int t = 0; t < tiles; t++) {
    const uint16_t *columns[Vectors], *ahead[Vectors];
    for (int v = 0; v < Vectors; v++) {
      columns[v] = call.values[t] + 2 * (dim + v * kWidth);
      ahead[v] = call.values[t + 2 < tiles ? t + 2 : tiles - 1] + 2 * (dim + v * kWidth);
    }
    add_products(sums, columns, ahead, 2 * static_cast<size_t>(call.head_dim), weights + t * kTileTokens, kChunkTokens,
                 kTileTokens / 2);
  }
  for (int r = 0; r < Rows; r++) {
    for (int v = 0; v < Vectors; v++) store(values + r * call.head_dim + dim + v * kWidth, sums[r][v]);
  }
}

template <int Rows>
void attend_rows(const ChunkCall& call, const Operand* q, int row, Partial* partial, float* values) {
  alignas(64) float dots[Rows * kChunkTokens];
  alignas(64) Operand weights[Rows * kChunkTokens];
  const int tiles = call.tiles_before(row + Rows);
  if (tiles > 0) score_rows<Rows>(call, tiles, q, dots);
  weigh(call, row, Rows, (tiles + 1) / 2 * 2 * kTileTokens, dots, weights, partial);
  // Whole blocks of lanes, then what is left: half a block where a block has 64 lanes.
  int dim = 0;
  for (; dim + kBlockLanes <= call.head_dim; dim += kBlockLanes) {
    sum_values<Rows, kBlockVectors>(call, tiles, weights, dim, values);
  }
  if (dim < call.head_dim) sum_values<Rows, kBlockVectors / 2>(call, tiles, weights, dim, values);
}

// Calls attend_rows for `rows` (1..Rows) rows.
template <int Rows>
void attend_block(int rows, const ChunkCall& call, const Operand* q, int row, Partial* partial, float* values) {
  if constexpr (Rows > 1) {
    if (rows < Rows) return attend_block<Rows - 1>(rows, call, q, row, partial, values);
  }
  attend_rows<Rows>(call, q, row, partial, values);
}

// The queries as rows [rows][head_dim].
inline void round_queries(const ChunkCall& call, const float* q, size_t q_ld, Operand* out) {
  // A query's heads lie side by side.
  const int query = call.heads * call.head_dim;
  for (int row = 0; row < call.rows; row += call.heads, q += q_ld, out += query) {
    for (int at = 0; at < query; at += kWidth) {
      store_operands(out + at, load<Floats>(q + at), call.key_scales == nullptr);
    }
  }
}

// 64 KB of stack for the queries, at most 12 KB below it.
inline void attend_tiles(const ChunkCall& call, const float* q, size_t q_ld, Partial* partial, float* values) {
  alignas(64) Operand queries[kMaxRows * kMaxHeadDim];
  round_queries(call, q, q_ld, queries);
  const int blocks = (call.rows + kBlockRows - 1) / kBlockRows;
  for (int block = 0; block < blocks; block++) {
    // Of nearly equal size: a block of one row would read as much as one of six.
    const int row = call.rows * block / blocks, end = call.rows * (block + 1) / blocks;
    attend_block<kBlockRows>(end - row, call, queries + row * call.head_dim, row, partial + row,
                             values + static_cast<size_t>(row) * call.head_dim);
  }
}

}  // namespace samovar::SAMOVAR_ISA_NAMESPACE
