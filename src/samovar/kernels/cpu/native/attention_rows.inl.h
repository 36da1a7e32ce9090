// The parts of attention over one chunk that every instruction set shares: which tiles a call reads, what a row of
// scores becomes, how rows of inputs are rounded.
#pragma once

#include "chunks.h"
#include "kernels.h"
#include "kv_int8.inl.h"
#include "math.inl.h"

namespace samovar::SAMOVAR_ISA_NAMESPACE {

constexpr int kChunkTiles = kChunkTokens / kTileTokens;
constexpr int kStepTokens = 2 * kTileTokens;  // weights are made for so many tokens at once

// What multiplies keys and values: bf16 pairs where an instruction takes them, else floats that hold bf16 values.
#if defined(__AVX512BF16__)
typedef uint16_t Operand;
#else
typedef float Operand;
#endif

inline void store_operands(Operand* at, Floats x, bool rounded = true) {
#if defined(__AVX512BF16__)
  (void)rounded;
  store(at, round_bf16(x));
#else
  store(at, rounded ? from_bf16(round_bf16(x)) : x);
#endif
}

// One call's arguments and the tiles it reads.
struct ChunkCall {
  int head_dim;
  int heads;
  int rows;   // queries * heads; row r is head r % heads of query r / heads
  float scale;
  int tiles;  // that the last query sees
  const uint16_t* keys[kChunkTiles];
  const uint16_t* values[kChunkTiles];
  // Null for bf16. Where tiles hold whole numbers, their scales [256]: a row's dots are multiplied by those of the keys,
  // its weights by those of the values; then nothing else is rounded.
  const float* key_scales = nullptr;
  const float* value_scales = nullptr;
  int visible[kMaxContextRows];  // tokens of the chunk that a row sees, 0 to 256; never fewer than the row before

  ChunkCall(int head_dim, int heads, int queries, float scale)
      : head_dim(head_dim), heads(heads), rows(queries * heads), scale(scale) {}

  // `first_visible`: tokens of the chunk before and at the first query's position; may be negative. Kernels that take
  // four rows at a time find up to three behind the last one that see what it sees.
  void see(int first_visible) {
    int tokens = first_visible;
    for (int row = 0; row < rows; tokens++) {
      const int bounded = tokens < 0 ? 0 : tokens > kChunkTokens ? kChunkTokens : tokens;
      for (int head = 0; head < heads; head++) visible[row++] = bounded;
    }
    for (int row = rows; row % 4 != 0; row++) visible[row] = visible[rows - 1];
  }
  // Tiles that a block of rows ending before `end` reads.
  int tiles_before(int end) const { return (visible[end - 1] + kTileTokens - 1) / kTileTokens; }
};

// Entries of the table past the last visible token are not read.
inline void find_tiles(const KVPool& pool, const int64_t* table, int kv_head, int chunk, int visible, ChunkCall* call) {
  call->tiles = (visible + kTileTokens - 1) / kTileTokens;
  for (int t = 0; t < call->tiles; t++) {
    size_t tile = pool.tile(table, chunk * kChunkTokens + t * kTileTokens, kv_head);
    call->keys[t] = reinterpret_cast<const uint16_t*>(pool.keys + tile);
    call->values[t] = reinterpret_cast<const uint16_t*>(pool.values + tile);
  }
}

// Tiles of keys that the next call is likely to begin with: those that follow in the context of the last query, or that
// the next KV head begins with.
struct NextKeys {
  const uint8_t* keys[kChunkTiles];
  int tiles;
};

inline NextKeys next_keys(const KVPool& pool, const int64_t* table, int kv_head, int chunk, int last_query) {
  NextKeys next;
  next.tiles = 0;
  int from = (chunk + 1) * kChunkTokens;
  if (from > last_query) {
    from = 0;
    if (++kv_head == pool.kv_heads) return next;
  }
  for (int at = from; at <= last_query && next.tiles < kChunkTiles; at += kTileTokens) {
    next.keys[next.tiles++] = pool.keys + pool.tile(table, at, kv_head);
  }
  return next;
}

// Values behind the last position are left over from another owner and may be NaN, which even a zero weight keeps:
// the last tile, where it is cut, is read from `copy` [16 * head_dim], with zeros there.
inline void cut_values(int visible, uint16_t* copy, ChunkCall* call) {
  const int kept = visible % kTileTokens;
  if (kept == 0) return;
  const int pair_elements = 2 * call->head_dim;
  const uint16_t* last = call->values[call->tiles - 1];
  for (int token = 0; token < kTileTokens; token += 2) {
    uint16_t* to = copy + token / 2 * pair_elements;
    if (token >= kept) {
      std::memset(to, 0, sizeof(uint16_t) * pair_elements);
      continue;
    }
    std::memcpy(to, last + token / 2 * pair_elements, sizeof(uint16_t) * pair_elements);
    if (token + 1 == kept) {
      for (int at = 1; at < pair_elements; at += 2) to[at] = 0;
    }
  }
  call->values[call->tiles - 1] = copy;
}

// The weights of 32 tokens from their dots, exp2(dot * factor + offset): rounds them to bf16, stores them as operands and
// adds what was stored to `total`.
inline void store_weights(const float* dots, Floats factor, Floats offset, Operand* weights, Floats* total) {
#if defined(__AVX512BF16__)
  const __m512bh ones = (__m512bh)_mm512_set1_epi32(0x3f803f80);
  Floats low = exp2_coarse(fma(load<Floats>(dots), factor, offset));
  Floats high = exp2_coarse(fma(load<Floats>(dots + kWidth), factor, offset));
  __m512bh both = _mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
  store(weights, both);
  *total = (Floats)_mm512_dpbf16_ps((__m512)*total, both, ones);
#else
  for (int at = 0; at < kStepTokens; at += kWidth) {
    Floats weight = from_bf16(round_bf16(exp2_coarse(fma(load<Floats>(dots + at), factor, offset))));
    store(weights + at, weight);
    *total += weight;
  }
#endif
}

// The same over whole numbers: what is stored is weight * scale, `total` sums the weights.
inline void store_scaled_weights(const float* dots, const float* scales, Floats factor, Floats offset, Operand* weights,
                                 Floats* total) {
  for (int at = 0; at < kStepTokens; at += kWidth) {
    const Floats weight = exp2_coarse(fma(load<Floats>(dots + at), factor, offset));
    store_operands(weights + at, weight * load<Floats>(scales + at), false);
    *total += weight;
  }
}

// Rows at once, to fill the time that one row's reductions take.
constexpr int kWeighedRows = 4;

// Dot products [Rows][256] of rows from `row` -> weights [Rows][256] = exp(scale * (dot - largest)), rounded, zero from
// where a row's view ends up to `padded` (a multiple of 32); totals are over the rounded ones. Overwrites the dots
// behind a row's view.
template <int Rows, bool Scaled>
inline void weigh_rows(const ChunkCall& call, int row, int padded, float* dots, Operand* weights, Partial* partial) {
  const float lowest = -std::numeric_limits<float>::infinity();
  const int* visible = call.visible + row;
  const int end = (visible[Rows - 1] + kStepTokens - 1) / kStepTokens * kStepTokens;
  Floats tops[Rows], totals[Rows] = {}, offsets[Rows];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; r++) {
    for (int at = 0; Scaled && at < end; at += kWidth) {
      float* to = dots + r * kChunkTokens + at;
      store(to, load<Floats>(to) * load<Floats>(call.key_scales + at));
    }
    for (int at = visible[r]; at < end; at++) dots[r * kChunkTokens + at] = lowest;
    if (end < padded) std::memset(weights + r * kChunkTokens + end, 0, sizeof(Operand) * (padded - end));
    tops[r] = all(lowest);
  }
  for (int at = 0; at < end; at += kWidth) {
#pragma GCC unroll 8
    for (int r = 0; r < Rows; r++) tops[r] = larger(tops[r], load<Floats>(dots + r * kChunkTokens + at));
  }
  const float factor = call.scale * kLog2E;
#pragma GCC unroll 8
  for (int r = 0; r < Rows; r++) {
    const float top = max_lanes(tops[r]);
    partial[r].top = top * call.scale;
    // A row that sees nothing has no largest dot to subtract; all its weights become 0.
    offsets[r] = all(visible[r] == 0 ? 0.0f : -(top * factor));
  }
  for (int at = 0; at < end; at += kStepTokens) {
#pragma GCC unroll 8
    for (int r = 0; r < Rows; r++) {
      const float* from = dots + r * kChunkTokens + at;
      Operand* to = weights + r * kChunkTokens + at;
      if constexpr (Scaled) {
        store_scaled_weights(from, call.value_scales + at, all(factor), offsets[r], to, &totals[r]);
      } else {
        store_weights(from, all(factor), offsets[r], to, &totals[r]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; r++) partial[r].total = sum_lanes(totals[r]);
}

// weigh_rows of any number of rows.
template <bool Scaled>
inline void weigh_all(const ChunkCall& call, int row, int rows, int padded, float* dots, Operand* weights,
                      Partial* partial) {
  int r = 0;
  for (; r + kWeighedRows <= rows; r += kWeighedRows) {
    weigh_rows<kWeighedRows, Scaled>(call, row + r, padded, dots + r * kChunkTokens, weights + r * kChunkTokens,
                                     partial + r);
  }
  for (; r < rows; r++) {
    weigh_rows<1, Scaled>(call, row + r, padded, dots + r * kChunkTokens, weights + r * kChunkTokens, partial + r);
  }
}

inline void weigh(const ChunkCall& call, int row, int rows, int padded, float* dots, Operand* weights,
                  Partial* partial) {
  (call.key_scales ? weigh_all<true> : weigh_all<false>)(call, row, rows, padded, dots, weights, partial);
}

}  // namespace samovar::SAMOVAR_ISA_NAMESPACE
