// Attention over one chunk of an int8 pool where no instruction multiplies bytes well: its whole numbers become bf16 in
// scratch memory, which holds them exactly, and the products of a bf16 pool do the rest, with operands that are not
// rounded (they are floats here).
#pragma once

#include "attention_rows.inl.h"

namespace samovar::SAMOVAR_ISA_NAMESPACE {

// Byte `number` of each lane, signed, as the bits of a float: those of a bf16 lie in its upper half, the lower is zero.
inline Words float_of_byte(Words lanes, int number) {
  return (Words)to_floats((Ints)(lanes << (24 - 8 * number)) >> 24);
}

// The four bytes of each lane as two bf16 pairs: to `out` and `out + step`.
inline void unpack_lanes(const uint8_t* at, uint16_t* out, size_t step) {
  const Words lanes = load<Words>(at);
  store(out, (float_of_byte(lanes, 0) >> 16) | float_of_byte(lanes, 1));
  store(out + step, (float_of_byte(lanes, 2) >> 16) | float_of_byte(lanes, 3));
}

inline void unpack_keys(const uint8_t* tile, int head_dim, uint16_t* out) {
  for (int dim = 0; dim < head_dim; dim += 4, tile += 4 * kTileTokens, out += 4 * kTileTokens) {
    for (int token = 0; token < kTileTokens; token += kWidth) {
      unpack_lanes(tile + 4 * token, out + 2 * token, 2 * kTileTokens);
    }
  }
}

inline void unpack_values(const uint8_t* tile, int head_dim, uint16_t* out) {
  for (int token = 0; token < kTileTokens; token += 4, tile += 4 * head_dim, out += 4 * head_dim) {
    for (int dim = 0; dim < head_dim; dim += kWidth) unpack_lanes(tile + 4 * dim, out + 2 * dim, 2 * head_dim);
  }
}

// 258 KB of stack for a whole chunk of the longest heads, beside that of attend_tiles.
inline __attribute__((noinline)) void attend_int8(const KVPool& pool, const int64_t* table, int kv_head, int chunk,
                                                  int visible, int, const float* q, size_t q_ld, ChunkCall* call,
                                                  Partial* partial, float* values) {
  alignas(64) uint16_t unpacked_keys[kChunkTokens * kMaxHeadDim], unpacked_values[kChunkTokens * kMaxHeadDim];
  alignas(64) float key_scales[kChunkTokens], value_scales[kChunkTokens];
  const size_t elements = pool.tile_elements(), scale_bytes = kTileTokens * sizeof(float);
  call->tiles = (visible + kTileTokens - 1) / kTileTokens;
  for (int t = 0; t < call->tiles; t++) {
    const size_t tile = pool.tile(table, chunk * kChunkTokens + t * kTileTokens, kv_head);
    const uint8_t *keys = pool.keys + tile, *tile_values = pool.values + tile;
    unpack_keys(keys, pool.head_dim, unpacked_keys + t * elements);
    unpack_values(tile_values, pool.head_dim, unpacked_values + t * elements);
    std::memcpy(key_scales + t * kTileTokens, keys + elements, scale_bytes);
    std::memcpy(value_scales + t * kTileTokens, tile_values + elements, scale_bytes);
    call->keys[t] = unpacked_keys + t * elements;
    call->values[t] = unpacked_values + t * elements;
  }
  // What lies behind the last position is left over from another owner, and its scale may be NaN, which even a weight of
  // zero would keep. Weights are made for two tiles at once.
  for (int at = visible; at < kChunkTokens; at++) key_scales[at] = value_scales[at] = 0.0f;
  call->key_scales = key_scales;
  call->value_scales = value_scales;
  attend_tiles(*call, q, q_ld, partial, values);
}

}  // namespace samovar::SAMOVAR_ISA_NAMESPACE
