// The widest vectors an instruction set has, for the inner loops of linear: a block's 16 outputs are kPieces vectors of
// kWidth. (The sixteen-lane types of simd.h would spill where registers are narrower.)
#pragma once

#include "half.h"
#include "layout.h"
#include "simd.h"

namespace samovar::SAMOVAR_ISA_NAMESPACE {

#if defined(__AVX512F__)
constexpr int kWidth = 16;
#elif defined(__AVX2__)
constexpr int kWidth = 8;
#else
constexpr int kWidth = 4;
#endif
constexpr int kPieces = kLanes / kWidth;

typedef float Floats __attribute__((vector_size(4 * kWidth)));
typedef int32_t Ints __attribute__((vector_size(4 * kWidth)));
typedef uint32_t Words __attribute__((vector_size(4 * kWidth)));

// Whether dot products take both factors signed: the weights of q8 are then used as u - 128, without an offset.
#if (defined(__AVX2__) && !defined(__AVX512F__)) || defined(__ARM_FEATURE_DOTPROD)
constexpr bool kSignedWeights = true;
#else
constexpr bool kSignedWeights = false;
#endif

// (0 + x would not do: it is no copy where x is -0, so the compiler must add.)
inline Floats all(float x) {
#if defined(__AVX512F__)
  return (Floats)_mm512_set1_ps(x);
#elif defined(__AVX2__)
  return (Floats)_mm256_set1_ps(x);
#else
  return Floats{x, x, x, x};
#endif
}
inline Floats to_floats(Ints x) { return __builtin_convertvector(x, Floats); }

#if !defined(__AVX512F__)
inline Floats fma(Floats a, Floats b, Floats c) {
#if defined(__AVX2__)
  return (Floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
  return (Floats)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + c;
#endif
}
#endif

inline Floats halves_to_floats(const uint8_t* at) {
#if defined(__AVX512F__)
  return (Floats)_mm512_cvtph_ps(load<__m256i>(at));
#elif defined(__AVX2__)
  return (Floats)_mm256_cvtph_ps(load<__m128i>(at));
#elif defined(__aarch64__)
  return (Floats)vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(at)));
#else
  Floats out;
  for (int lane = 0; lane < kWidth; lane++) out[lane] = half_to_float(load<uint16_t>(at + 2 * lane));
  return out;
#endif
}

inline Ints all(int32_t x) {
#if defined(__AVX512F__)
  return (Ints)_mm512_set1_epi32(x);
#elif defined(__AVX2__)
  return (Ints)_mm256_set1_epi32(x);
#else
  return Ints{x, x, x, x};
#endif
}

// How many quads `add_dot` takes at once: where pairs are summed in 16 bits, as many as fit before they must be
// widened.
template <int kTop>
constexpr int quads_at_once() {
#if defined(__AVX2__) && !defined(__AVX512VNNI__)
  return kTop == 15 ? 8 : kTop == 63 ? 2 : 1;
#else
  return 1;
#endif
}

// Adds, lane by lane, the dot product of quads_at_once quads of bytes: weights[i] holds a quad of each lane, q the
// activations of all. kTop bounds the weights' size: 15 and 63 are unsigned; 255 is unsigned or, where kSignedWeights,
// signed. Exact.
template <int kTop>
inline Ints add_dot(Ints sum, const Ints* weights, const int8_t* q) {
#if defined(__AVX512VNNI__)
  return (Ints)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)weights[0], _mm512_set1_epi32(load<int32_t>(q)));
#elif defined(__AVX2__)
  __m256i pairs = _mm256_setzero_si256();
  for (int i = 0; i < quads_at_once<kTop>(); i++) {
    const __m256i w = (__m256i)weights[i], x = _mm256_set1_epi32(load<int32_t>(q + 4 * i));
    const __m256i product = kTop == 255 ? _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
                                        : _mm256_maddubs_epi16(w, x);
    pairs = i == 0 ? product : _mm256_add_epi16(pairs, product);
  }
  return (Ints)_mm256_add_epi32((__m256i)sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#elif defined(__ARM_FEATURE_DOTPROD)
  return (Ints)vdotq_s32((int32x4_t)sum, (int8x16_t)weights[0], vreinterpretq_s8_s32(vdupq_n_s32(load<int32_t>(q))));
#else
  for (int j = 0; j < 4; j++) sum += (Ints)(((Words)weights[0] >> (8 * j)) & 255u) * int32_t{q[j]};
  return sum;
#endif
}

// The dot product of 4 * kQuads bytes.
template <int kTop, int kQuads>
inline Ints dot(const Ints* weights, const int8_t* q) {
  Ints sum{};
  for (int i = 0; i < kQuads; i += quads_at_once<kTop>()) sum = add_dot<kTop>(sum, weights + i, q + 4 * i);
  return sum;
}

// Adds the product of a pair of bf16 weights in each lane with a pair of activations.
inline Floats dot_bf16(Floats sum, Words weights, const uint16_t* pair) {
#if defined(__AVX512BF16__)
  return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)weights, (__m512bh)_mm512_set1_epi32(load<int32_t>(pair)));
#else
  const Words both = Words{} + load<uint32_t>(pair);
  sum = fma((Floats)(weights << 16), (Floats)(both << 16), sum);
  return fma((Floats)(weights & 0xffff0000u), (Floats)(both & 0xffff0000u), sum);
#endif
}

// Asks for `bytes` (whole cache lines) ahead of their use.
inline void prefetch(const uint8_t* at, size_t bytes) {
  // Hides where the address comes from: gcc would otherwise keep each line's distance in a register of its own.
  __asm__("" : "+r"(at));
  for (size_t line = 0; line < bytes; line += 64) __builtin_prefetch(at + line);
}

}  // namespace samovar::SAMOVAR_ISA_NAMESPACE
