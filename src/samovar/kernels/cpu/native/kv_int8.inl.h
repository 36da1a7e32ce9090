// One token of an int8 pool (layout.h).
#pragma once

#include "kernels.h"
#include "math.inl.h"

namespace samovar::SAMOVAR_ISA_NAMESPACE {

constexpr int kMaxHeadDim = 256;

// Below this numbers are rounded to zeros: the inverse of the smallest floats would not be finite.
constexpr float kSmallestSize = 1e-30f;

// How numbers whose largest size is `largest` are rounded to whole ones up to `most`: x * inverse, then times scale.
// With an infinity or a NaN among them the scale is that, and spoils all.
struct Rounding {
  float scale;
  float inverse;
};
inline Rounding rounding_of(float largest, float most) {
  if (!(largest < std::numeric_limits<float>::infinity())) return {largest, 0.0f};
  if (largest < kSmallestSize) return {0.0f, 0.0f};
  return {largest / most, most / largest};
}

// The bits of sizes (floats without sign) compare like whole numbers, NaN above all.
inline Ints size_bits(Floats x) { return (Ints)x & 0x7fffffff; }
inline Ints larger(Ints a, Ints b) { return b > a ? b : a; }
inline float largest_size(Ints bits) {
  int32_t top = 0;
  for (int lane = 0; lane < kWidth; lane++) top = bits[lane] > top ? bits[lane] : top;
  return bits_float(static_cast<uint32_t>(top));
}

inline Rounding rounding_of(const float* x, int count, float most) {
  Ints top{};
  for (int at = 0; at < count; at += kWidth) top = larger(top, size_bits(load<Floats>(x + at)));
  return rounding_of(largest_size(top), most);
}

// x [head_dim] of one token and head -> q; returns the scale.
inline float round_token(const float* x, int head_dim, int8_t (&q)[kMaxHeadDim]) {
  const Rounding rounding = rounding_of(x, head_dim, 127.0f);
  if (rounding.inverse == 0.0f) {
    std::memset(q, 0, sizeof q);
    return rounding.scale;
  }
  typedef int8_t Bytes __attribute__((vector_size(kWidth)));
  for (int dim = 0; dim < head_dim; dim += kWidth) {
    // Adding 1.5 * 2^23 rounds to a whole number, to nearest even, in the low bits.
    const Floats shifted = load<Floats>(x + dim) * rounding.inverse + 12582912.0f;
    store(q + dim, __builtin_convertvector((Ints)shifted - 0x4b400000, Bytes));
  }
  return rounding.scale;
}

// Token `token` of the tile at this offset, one head: k, v [head_dim]. Writes only the token's own bytes, as for bf16.
inline void write_int8(const KVPool& pool, size_t tile, int token, const float* k, const float* v) {
  const int head_dim = pool.head_dim;
  int8_t q[kMaxHeadDim];
  uint8_t *keys = pool.keys + tile, *values = pool.values + tile;
  const size_t scale_at = pool.tile_elements() + token * sizeof(float);
  store(keys + scale_at, round_token(k, head_dim, q));
  for (int dim = 0; dim < head_dim; dim += 4) std::memcpy(keys + dim * kTileTokens + 4 * token, q + dim, 4);
  store(values + scale_at, round_token(v, head_dim, q));
  uint8_t* own = values + token / 4 * 4 * static_cast<size_t>(head_dim) + token % 4;
  for (int dim = 0; dim < head_dim; dim++) own[4 * dim] = static_cast<uint8_t>(q[dim]);
}

}  // namespace samovar::SAMOVAR_ISA_NAMESPACE
