// Attention over the paged KV pool: writing a token, one chunk of a context, merging chunks, a whole context. Keys and
// values lie in tiles (layout.h) that the products read as they are.
#pragma once

#include "chunks.h"

#if defined(__AMX_BF16__)
#include "attention_amx.inl.h"
#else
#include "attention_vector.inl.h"
#endif

#if defined(__AVX512VNNI__)
#include "attention_int8_bytes.inl.h"
#else
#include "attention_int8_plain.inl.h"
#endif

namespace samovar::SAMOVAR_ISA_NAMESPACE {

// Writes only the token's own elements: another thread may be writing its neighbour in the same pair.
inline void write_kv(const KVPool& pool, int64_t slot, const float* k, const float* v) {
  const int head_dim = pool.head_dim;
  const int token = static_cast<int>(slot % kTileTokens);
  const size_t first_tile = static_cast<size_t>(slot / kTileTokens) * pool.kv_heads;
  for (int head = 0; head < pool.kv_heads; head++, k += head_dim, v += head_dim) {
    const size_t tile = (first_tile + head) * pool.tile_bytes();
    if (pool.format == KVFormat::int8) {
      write_int8(pool, tile, token, k, v);
      continue;
    }
    uint16_t* keys = reinterpret_cast<uint16_t*>(pool.keys + tile) + 2 * token;
    uint16_t* values = reinterpret_cast<uint16_t*>(pool.values + tile) +
                       token / 2 * 2 * static_cast<size_t>(head_dim) + token % 2;
    for (int dim = 0; dim < head_dim; dim += kWidth) {
      uint16_t rounded[kWidth];
      store(rounded, round_bf16(load<Floats>(k + dim)));
      for (int pair = 0; pair < kWidth / 2; pair++) {
        std::memcpy(keys + (dim / 2 + pair) * 2 * kTileTokens, rounded + 2 * pair, 2 * sizeof(uint16_t));
      }
      store(rounded, round_bf16(load<Floats>(v + dim)));
      for (int lane = 0; lane < kWidth; lane++) values[2 * (dim + lane)] = rounded[lane];
    }
  }
}

// scale > 0. Uses up to 250 KB of stack, up to 500 KB over an int8 pool.
inline void attend_chunk(const KVPool& pool, const int64_t* table, int kv_head, int chunk, const float* q, size_t q_ld,
                         int heads, int queries, int start, float scale, Partial* partial, float* values) {
  ChunkCall call(pool.head_dim, heads, queries, scale);
  call.see(start + 1 - chunk * kChunkTokens);
  const int visible = call.visible[call.rows - 1];
  if (visible == 0) {
    for (int row = 0; row < call.rows; row++) partial[row] = {-std::numeric_limits<float>::infinity(), 0.0f};
    std::memset(values, 0, sizeof(float) * call.rows * call.head_dim);
    return;
  }
  if (pool.format == KVFormat::int8) {
    attend_int8(pool, table, kv_head, chunk, visible, start + queries - 1, q, q_ld, &call, partial, values);
    return;
  }
  find_tiles(pool, table, kv_head, chunk, visible, &call);
#if defined(__AMX_BF16__)
  const NextKeys next = next_keys(pool, table, kv_head, chunk, start + queries - 1);
  attend_tiles(call, next, q, q_ld, partial, values);
#else
  alignas(64) uint16_t last_values[kTileTokens * kMaxHeadDim];
  cut_values(visible, last_values, &call);
  attend_tiles(call, q, q_ld, partial, values);
#endif
}

// A result that saw nothing has a total of exactly 0; a NaN in a total is kept.
inline void merge(Partial* into, float* into_values, const Partial& chunk, const float* chunk_values, int head_dim) {
  if (chunk.total == 0.0f) return;
  if (into->total == 0.0f) {
    *into = chunk;
    std::memcpy(into_values, chunk_values, sizeof(float) * head_dim);
    return;
  }
  const float top = chunk.top > into->top ? chunk.top : into->top;
  Floats shifts = all(into->top - top);
  shifts[1] = chunk.top - top;
  shifts = exp(shifts);
  const Floats before = all(shifts[0]), added = all(shifts[1]);
  into->top = top;
  into->total = into->total * before[0] + chunk.total * added[0];
  for (int at = 0; at < head_dim; at += kWidth) {
    Floats scaled = load<Floats>(into_values + at) * before;
    store(into_values + at, fma(load<Floats>(chunk_values + at), added, scaled));
  }
}

// Adding 0 turns -0 into 0: which of them a sum of rounded-off values is may depend on how many zeros were added to it.
inline void finish(const Partial& whole, const float* values, int head_dim, float* out) {
  const Floats total = all(whole.total);
  for (int at = 0; at < head_dim; at += kWidth) store(out + at, load<Floats>(values + at) / total + 0.0f);
}

// Chunk by chunk, as anyone else would merge them. 130 KB of stack beside that of attend_chunk.
inline __attribute__((noinline)) void attend_in_chunks(const KVPool& pool, const int64_t* table, int kv_head,
                                                       const float* q, size_t q_ld, int heads, int queries, int start,
                                                       float scale, float* out, size_t out_ld) {
  Partial running[kMaxRows], added[kMaxRows];
  alignas(64) float running_values[kMaxRows * kMaxHeadDim], added_values[kMaxRows * kMaxHeadDim];
  const int head_dim = pool.head_dim, rows = queries * heads;
  for (int chunk = 0; chunk < chunks_of(start + queries); chunk++) {
    const bool first = chunk == 0;
    attend_chunk(pool, table, kv_head, chunk, q, q_ld, heads, queries, start, scale, first ? running : added,
                 first ? running_values : added_values);
    for (int row = 0; row < rows && !first; row++) {
      merge(running + row, running_values + row * head_dim, added[row], added_values + row * head_dim, head_dim);
    }
  }
  for (int row = 0; row < rows; row++) {
    finish(running[row], running_values + row * head_dim, head_dim,
           out + row / heads * out_ld + row % heads * static_cast<size_t>(head_dim));
  }
}

inline void attend(const KVPool& pool, const int64_t* table, int kv_head, const float* q, size_t q_ld, int heads,
                   int queries, int start, float scale, float* out, size_t out_ld) {
#if defined(__AMX_BF16__)
  if (pool.format == KVFormat::bf16) {
    attend_in_tiles(pool, table, kv_head, q, q_ld, heads, queries, start, scale, out, out_ld);
    return;
  }
#endif
  attend_in_chunks(pool, table, kv_head, q, q_ld, heads, queries, start, scale, out, out_ld);
}

}  // namespace samovar::SAMOVAR_ISA_NAMESPACE
