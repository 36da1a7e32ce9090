// Vector arithmetic that several kernels share: exponentials, bf16 rounding, sums across lanes in a fixed order.
// Polynomials are minimax fits of the relative error, with the constant term fixed at 1 so that exp(0) is exactly 1.
#pragma once

#include <limits>

#include "linear_lanes.inl.h"

namespace samovar::SAMOVAR_ISA_NAMESPACE {

typedef uint16_t Halves __attribute__((vector_size(2 * kWidth)));

constexpr float kLog2E = 1.44269504088896341f;

// p * 2^power for powers in [-127, 128]: two factors, since 2^-127 and 2^128 are no normal floats.
inline Floats scale_by_power_of_two(Floats p, Ints power) {
  Ints half = power >> 1;
  return p * (Floats)((half + 127) << 23) * (Floats)((power - half + 127) << 23);
}

// e^x: relative error below 2e-7 while the result is a normal number; -inf gives 0, inf gives inf, NaN stays NaN.
inline Floats exp(Floats x) {
  // ln 2 in two parts: the product of the first (15 bits) with a power is exact even where `fma` rounds twice.
  const Floats ln2_high = all(0.693145751953125f), ln2_low = all(1.42860682e-6f);
#if defined(__AVX512F__)
  // A NaN as the second operand of min and max is what they return.
  x = (Floats)_mm512_min_ps(_mm512_set1_ps(89.0f), _mm512_max_ps(_mm512_set1_ps(-110.0f), (__m512)x));
  Floats power = (Floats)_mm512_roundscale_ps((__m512)(x * kLog2E), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
  const Floats given = x;
  x = x < -88.0f ? all(-88.0f) : x;
  x = x > 89.0f ? all(89.0f) : x;
  const Floats magic = all(12582912.0f);  // 1.5 * 2^23: adding it rounds to a whole number
  Floats shifted = x * kLog2E + magic;
  Floats power = shifted - magic;
#endif
  Floats r = fma(power, -ln2_low, fma(power, -ln2_high, x));
  Floats p = all(0.0013814467f);
  p = fma(p, r, all(0.00836878045f));
  p = fma(p, r, all(0.0416683942f));
  p = fma(p, r, all(0.166665201f));
  p = fma(p, r, all(0.499999934f));
  p = fma(p, r, all(1.0f));
  p = fma(p, r, all(1.0f));
#if defined(__AVX512F__)
  return (Floats)_mm512_scalef_ps((__m512)p, (__m512)power);
#else
  Ints whole = (Ints)shifted - (Ints)magic;
  return given < -88.0f ? all(0.0f) : scale_by_power_of_two(p, whole);
#endif
}

// 2^x for x <= 0 to a relative error of 9e-5, a twentieth of the bf16 rounding that follows in attention: -inf and
// results below the normal range give 0, NaN stays NaN.
inline Floats exp2_coarse(Floats x) {
#if defined(__AVX512F__)
  // The fraction above floor(x); 0 for an infinite x. scalef takes the floor itself.
  Floats r = (Floats)_mm512_reduce_ps((__m512)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
#else
  Floats bounded = x < -126.0f ? all(-126.0f) : x;
  const Floats magic = all(12582912.0f);
  Floats shifted = (bounded - 0.5f) + magic;
  Floats r = bounded - (shifted - magic);
#endif
  Floats p = all(0.0770670552f);
  p = fma(p, r, all(0.227644977f));
  p = fma(p, r, all(0.69511679f));
  p = fma(p, r, all(1.0f));
#if defined(__AVX512F__)
  return (Floats)_mm512_scalef_ps((__m512)p, (__m512)x);
#else
  Ints whole = (Ints)shifted - (Ints)magic;
  return x < -126.0f ? all(0.0f) : scale_by_power_of_two(p, whole);
#endif
}

inline Floats silu(Floats x) { return x / (exp(-x) + 1.0f); }

// Rounds to bf16, to nearest even; NaN stays NaN. Where the CPU has the instruction it also flushes subnormals to 0.
inline Halves round_bf16(Floats x) {
#if defined(__AVX512BF16__)
  return (Halves)(__m256i)_mm512_cvtneps_pbh((__m512)x);
#else
  Words bits = (Words)x;
  Words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  Words quiet = (bits >> 16) | 0x40;
  return __builtin_convertvector(x == x ? rounded : quiet, Halves);
#endif
}

inline Floats from_bf16(Halves x) { return (Floats)(__builtin_convertvector(x, Words) << 16); }

// Halves are added until one lane is left.
inline float sum_lanes(Floats x) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_ps((__m512)x);
#else
  float lanes[kWidth];
  store(lanes, x);
  for (int half = kWidth / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; lane++) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
#endif
}

// The larger of each lane; the first where the second is NaN.
inline Floats larger(Floats a, Floats b) {
#if defined(__AVX512F__)
  return (Floats)_mm512_max_ps((__m512)b, (__m512)a);
#else
  return b > a ? b : a;
#endif
}

inline float max_lanes(Floats x) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps((__m512)x);
#else
  float top = x[0];
  for (int lane = 1; lane < kWidth; lane++) top = x[lane] > top ? x[lane] : top;
  return top;
#endif
}

// The first `count` (0 to the lanes of V) floats at `at`, zeros behind them.
template <class V>
inline V load_some(const float* at, int count) {
#if defined(__AVX512F__)
  return (V)_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), at);
#else
  V value{};
  std::memcpy(&value, at, static_cast<size_t>(count) * sizeof(float));
  return value;
#endif
}
template <class V>
inline void store_first(float* at, const V& value, int count) {
  std::memcpy(at, &value, static_cast<size_t>(count) * sizeof(float));
}

// The same for sixteen lanes, where those are several vectors.
inline f32x16 load_first(const float* at, int count) { return load_some<f32x16>(at, count); }

#if !defined(__AVX512F__)
typedef uint16_t u16x16 __attribute__((vector_size(32)));

inline f32x16 silu(const f32x16& x) {
  f32x16 out;
  for (int lane = 0; lane < kLanes; lane += kWidth) {
    store((float*)&out + lane, silu(load<Floats>((const float*)&x + lane)));
  }
  return out;
}

inline u16x16 round_bf16(const f32x16& x) {
  u16x16 out;
  for (int lane = 0; lane < kLanes; lane += kWidth) {
    store((uint16_t*)&out + lane, round_bf16(load<Floats>((const float*)&x + lane)));
  }
  return out;
}
#endif

}  // namespace samovar::SAMOVAR_ISA_NAMESPACE
