// The products of attention over an int8 pool with vector instructions: lanes are tokens for scores and dimensions for
// values, four bytes of each at once.
#pragma once

#include "linear_lanes.inl.h"

namespace samovar::SAMOVAR_ISA_NAMESPACE {

// Rows that are accumulated at once: each takes four registers.
constexpr int kByteBlockRows = 5;
constexpr int kByteVectors = 2;

template <int Rows>
struct ByteSums {
  Ints high[Rows][kByteVectors];
  Ints low[Rows][kByteVectors];
  Ints columns[kByteVectors];  // of what multiplies the rows, by itself
};

inline Ints add_quad(Ints sum, Ints bytes_without_sign, Ints signed_bytes) {
  return (Ints)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)bytes_without_sign, (__m512i)signed_bytes);
}

// Adds the products of `quads` quads: vector v of quad i lies at columns[v] + i * step.
template <int Rows, bool WithColumns>
__attribute__((always_inline)) inline void add_byte_products(ByteSums<Rows>& sums,
                                                             const uint8_t* const (&columns)[kByteVectors], size_t step,
                                                             const ByteRows& rows, int stride, int quads) {
  const Ints ones = all(int32_t{0x01010101});
  for (int i = 0; i < quads; i++) {
    Ints factors[kByteVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kByteVectors; v++) {
      factors[v] = load<Ints>(columns[v] + i * step);
      if (WithColumns) sums.columns[v] = add_quad(sums.columns[v], ones, factors[v]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < Rows; r++) {
      const Ints high = all(load<int32_t>(rows.high + r * stride + 4 * i));
      const Ints low = all(load<int32_t>(rows.low + r * stride + 4 * i));
#pragma GCC unroll 8
      for (int v = 0; v < kByteVectors; v++) {
        sums.high[r][v] = add_quad(sums.high[r][v], high, factors[v]);
        sums.low[r][v] = add_quad(sums.low[r][v], low, factors[v]);
      }
    }
  }
}

// Rows from `row`: all of a block's work.
template <int Rows>
void attend_byte_rows(const ByteCall& call, int row, Partial* partial, float* values) {
  alignas(64) float dots[Rows * kChunkTokens];
  alignas(64) uint8_t high[Rows * kChunkTokens], low[Rows * kChunkTokens];
  float weight_scales[Rows];
  const int head_dim = call.chunk.head_dim, tiles = call.chunk.tiles_before(row + Rows);
  const ByteRows queries{call.queries.high + row * head_dim, call.queries.low + row * head_dim}, weights{high, low};
  for (int t = 0; t < tiles; t += kByteVectors) {
    const bool two = t + 1 < tiles;
    // Behind the last tile the same one again: its dots are not kept.
    const uint8_t* const columns[kByteVectors] = {call.stored[t], call.stored[two ? t + 1 : t]};
    for (int next = t; row == 0 && next < t + kByteVectors; next++) call.ask(next + kByteTilesAhead);
    ByteSums<Rows> sums = {};
    add_byte_products<Rows, true>(sums, columns, 4 * kTileTokens, queries, head_dim, head_dim / 4);
    for (int r = 0; r < Rows; r++) {
      for (int v = 0; v < (two ? 2 : 1); v++) {
        const Ints offset = sums.columns[v] * kByteOffset;
        store_dots(call, row + r, t + v, sums.high[r][v] - offset, sums.low[r][v] - offset, dots + r * kChunkTokens);
      }
    }
  }
  weigh_bytes_of(call, row, Rows, tiles * kTileTokens, dots, weights, weight_scales, partial);
  for (int t = 0; row == 0 && t < call.next.tiles; t++) call.ask_next(t);
  for (int dim = 0; dim < head_dim; dim += kByteVectors * kWidth) {
    ByteSums<Rows> sums = {};
    for (int t = 0; t < tiles; t++) {
      const uint8_t* first = call.values(t) + 4 * dim;
      const uint8_t* const columns[kByteVectors] = {first, first + 4 * kWidth};
      const ByteRows some{high + t * kTileTokens, low + t * kTileTokens};
      add_byte_products<Rows, false>(sums, columns, 4 * static_cast<size_t>(head_dim), some, kChunkTokens,
                                     kTileTokens / 4);
    }
    for (int r = 0; r < Rows; r++) {
      for (int v = 0; v < kByteVectors; v++) {
        store_sums(sums.high[r][v], sums.low[r][v], weight_scales[r], values + r * head_dim + dim + v * kWidth);
      }
    }
  }
}

// Calls attend_byte_rows for `rows` (1..Rows) rows.
template <int Rows>
void attend_byte_block(int rows, const ByteCall& call, int row, Partial* partial, float* values) {
  if constexpr (Rows > 1) {
    if (rows < Rows) return attend_byte_block<Rows - 1>(rows, call, row, partial, values);
  }
  attend_byte_rows<Rows>(call, row, partial, values);
}

// At most 8 KB of stack.
inline void attend_in_vectors(const ByteCall& call, Partial* partial, float* values) {
  const int rows = call.chunk.rows, blocks = (rows + kByteBlockRows - 1) / kByteBlockRows;
  for (int block = 0; block < blocks; block++) {
    const int row = rows * block / blocks, end = rows * (block + 1) / blocks;
    attend_byte_block<kByteBlockRows>(end - row, call, row, partial + row,
                                      values + static_cast<size_t>(row) * call.chunk.head_dim);
  }
}

}  // namespace samovar::SAMOVAR_ISA_NAMESPACE
