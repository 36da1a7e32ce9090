// Attention over one chunk of an int8 pool with products of bytes, read where they lie. Queries and weights become whole
// numbers of 16 bits with a scale per row: finer than bf16, and as two bytes each they make sums that are exact in any
// order. A row's dots are multiplied by the keys' scales; its weights are multiplied by the values' before they are
// rounded, so that these are gone from the sums.
#pragma once

#include "attention_rows.inl.h"

namespace samovar::SAMOVAR_ISA_NAMESPACE {

// A query's number is 256 * high + low with signed bytes. Vector products take none with a sign: there both are kept 128
// higher.
constexpr float kMostOfQuery = 32512.0f;  // 127 * 256
constexpr int32_t kByteOffset = 128;
// A weight's is 256 * high + low with unsigned bytes.
constexpr float kMostOfWeight = 65535.0f;

// How far ahead of its use a tile of keys or values is asked for when it is read once: some 6 KB.
constexpr int kByteTilesAhead = 6;

// Rows of whole numbers, a byte of each in either array.
struct ByteRows {
  uint8_t* high;
  uint8_t* low;
};

inline void store_bytes(Ints high, Ints low, const ByteRows& to, size_t at) {
  store(to.high + at, _mm512_cvtepi32_epi8((__m512i)high));
  store(to.low + at, _mm512_cvtepi32_epi8((__m512i)low));
}

// What both kinds of products share: one call's tiles and its rows of queries.
struct ByteCall {
  const ChunkCall& chunk;
  int tiles;
  const uint8_t* stored[2 * kChunkTiles];  // the tiles of keys, then of values
  size_t stored_bytes;                     // of one
  NextKeys next;
  float query_scales[kMaxRows];
  ByteRows queries;  // [rows][head_dim]

  size_t elements() const { return kTileTokens * static_cast<size_t>(chunk.head_dim); }
  const uint8_t* values(int tile) const { return stored[tiles + tile]; }
  void ask(int entry) const {
    if (entry < 2 * tiles) prefetch(stored[entry], stored_bytes);
  }
  void ask_next(int tile) const {
    if (tile < next.tiles) prefetch(next.keys[tile], stored_bytes);
  }
};

inline void round_to_bytes(const float* q, size_t q_ld, int32_t offset, ByteCall* call) {
  const int head_dim = call->chunk.head_dim;
  for (int row = 0; row < call->chunk.rows; row++) {
    const float* x = q + row / call->chunk.heads * q_ld + row % call->chunk.heads * static_cast<size_t>(head_dim);
    const Rounding rounding = rounding_of(x, head_dim, kMostOfQuery);
    call->query_scales[row] = rounding.scale;
    for (int dim = 0; dim < head_dim; dim += kWidth) {
      const Ints number = (Ints)_mm512_cvtps_epi32((__m512)(load<Floats>(x + dim) * rounding.inverse));
      store_bytes(((number + 128) >> 8) + offset, number + offset, call->queries,
                  static_cast<size_t>(row) * head_dim + dim);
    }
  }
}

// dots [16 tokens] of one row with a tile of keys, from the sums of its two bytes' products.
inline void store_dots(const ByteCall& call, int row, int tile, Ints high, Ints low, float* dots) {
  const Floats scales = load<Floats>(call.stored[tile] + call.elements());
  const Floats dot = fma(to_floats(high), all(256.0f), to_floats(low)) * call.query_scales[row];
  store(dots + tile * kTileTokens, dot * scales);
}

// Dots [Rows][256] of rows from `row` -> weights, whole numbers [Rows][256], zero from where a row's view ends up to
// `padded`, and their scales. Overwrites the dots.
template <int Rows>
inline void weigh_bytes(const ByteCall& call, int row, int padded, float* dots, const ByteRows& weights,
                        float* weight_scales, Partial* partial) {
  const float lowest = -std::numeric_limits<float>::infinity(), factor = call.chunk.scale * kLog2E;
  const int* visible = call.chunk.visible + row;
  const int end = (visible[Rows - 1] + kTileTokens - 1) / kTileTokens * kTileTokens;
  Floats tops[Rows], totals[Rows] = {}, offsets[Rows], inverses[Rows];
  Ints sizes[Rows] = {};
#pragma GCC unroll 8
  for (int r = 0; r < Rows; r++) {
    for (int at = visible[r]; at < end; at++) dots[r * kChunkTokens + at] = lowest;
    std::memset(weights.high + r * kChunkTokens + end, 0, padded - end);
    std::memset(weights.low + r * kChunkTokens + end, 0, padded - end);
    tops[r] = all(lowest);
  }
  for (int at = 0; at < end; at += kWidth) {
#pragma GCC unroll 8
    for (int r = 0; r < Rows; r++) tops[r] = larger(tops[r], load<Floats>(dots + r * kChunkTokens + at));
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; r++) {
    const float top = max_lanes(tops[r]);
    partial[r].top = top * call.chunk.scale;
    // A row that sees nothing has no largest dot to subtract; all its weights become 0.
    offsets[r] = all(visible[r] == 0 ? 0.0f : -(top * factor));
  }
  for (int at = 0; at < end; at += kWidth) {
    // Behind the last position the scale is left over from another owner and may be NaN, which a zero weight would keep.
    const int known = visible[Rows - 1] - at;
    const __mmask16 mask = known < kTileTokens ? (1u << known) - 1 : 0xffff;
    const Floats scales = (Floats)_mm512_maskz_loadu_ps(mask, call.values(at / kTileTokens) + call.elements());
#pragma GCC unroll 8
    for (int r = 0; r < Rows; r++) {
      float* to = dots + r * kChunkTokens + at;
      const Floats weight = exp2_coarse(fma(load<Floats>(to), all(factor), offsets[r]));
      totals[r] += weight;
      const Floats scaled = weight * scales;
      sizes[r] = larger(sizes[r], (Ints)scaled);  // a weight has no sign
      store(to, scaled);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; r++) {
    partial[r].total = sum_lanes(totals[r]);
    const int32_t largest = _mm512_reduce_max_epi32((__m512i)sizes[r]);
    const Rounding rounding = rounding_of(bits_float(static_cast<uint32_t>(largest)), kMostOfWeight);
    weight_scales[r] = rounding.scale;
    inverses[r] = all(rounding.inverse);
  }
  for (int at = 0; at < end; at += kWidth) {
#pragma GCC unroll 8
    for (int r = 0; r < Rows; r++) {
      const Floats scaled = load<Floats>(dots + r * kChunkTokens + at) * inverses[r];
      const Ints number = (Ints)_mm512_cvtps_epi32((__m512)scaled);
      store_bytes(number >> 8, number, weights, r * kChunkTokens + at);
    }
  }
}

// weigh_bytes of any number of rows.
inline void weigh_bytes_of(const ByteCall& call, int row, int rows, int padded, float* dots, const ByteRows& weights,
                           float* weight_scales, Partial* partial) {
  int r = 0;
  const auto weigh_some = [&](auto function) {
    const ByteRows from{weights.high + r * kChunkTokens, weights.low + r * kChunkTokens};
    function(call, row + r, padded, dots + r * kChunkTokens, from, weight_scales + r, partial + r);
  };
  for (; r + kWeighedRows <= rows; r += kWeighedRows) weigh_some(weigh_bytes<kWeighedRows>);
  if (rows - r >= 2) {
    weigh_some(weigh_bytes<2>);
    r += 2;
  }
  if (rows - r == 1) weigh_some(weigh_bytes<1>);
}

// 16 dimensions of a row's values from the sums of its weights' two bytes.
inline void store_sums(Ints high, Ints low, float weight_scale, float* out) {
  store(out, fma(to_floats(high), all(256.0f), to_floats(low)) * weight_scale);
}

}  // namespace samovar::SAMOVAR_ISA_NAMESPACE

#include "attention_int8_vnni.inl.h"
#if defined(__AMX_INT8__)
#include "attention_int8_amx.inl.h"
#endif

namespace samovar::SAMOVAR_ISA_NAMESPACE {

// 32 KB of stack beside that of the products. Both kinds give the same bits.
inline __attribute__((noinline)) void attend_int8(const KVPool& pool, const int64_t* table, int kv_head, int chunk,
                                                  int visible, int last_query, const float* q, size_t q_ld,
                                                  ChunkCall* chunk_call, Partial* partial, float* values) {
  alignas(64) uint8_t high[kMaxRows * kMaxHeadDim], low[kMaxRows * kMaxHeadDim];
  ByteCall call{*chunk_call, (visible + kTileTokens - 1) / kTileTokens, {}, pool.tile_bytes(), {}, {}, {high, low}};
  for (int t = 0; t < call.tiles; t++) {
    const size_t tile = pool.tile(table, chunk * kChunkTokens + t * kTileTokens, kv_head);
    call.stored[t] = pool.keys + tile;
    call.stored[call.tiles + t] = pool.values + tile;
  }
  call.next = next_keys(pool, table, kv_head, chunk, last_query);
  for (int t = 0; t < kByteTilesAhead; t++) call.ask(t);
#if defined(__AMX_INT8__)
  if (chunk_call->rows > kFewAttendedRows) {
    round_to_bytes(q, q_ld, 0, &call);
    attend_in_tiles(call, partial, values);
    return;
  }
#endif
  round_to_bytes(q, q_ld, kByteOffset, &call);
  attend_in_vectors(call, partial, values);
}

}  // namespace samovar::SAMOVAR_ISA_NAMESPACE
