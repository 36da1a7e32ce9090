// Quantised weights as bf16, for products that take both factors so: a strip of 64 inputs x 16 outputs becomes a record
// of a bf16 matrix (layout.h). A weight is d * u + m in f32, one rounding, then rounded to bf16: to nearest, ties away
// from zero. (Two floats are rounded so and laid side by side in four instructions for either port; the CPU's own
// conversion needs more, most on the port of the look-ups' shuffles, and is a fifth slower: measured.)
#pragma once

#include "linear_weights.inl.h"

namespace samovar::SAMOVAR_ISA_NAMESPACE {

constexpr size_t kBf16Record = strip_bytes(Format::bf16);

// The pair of each lane. (Of NaN only one whose every bit is set would get lost.)
inline __m512i round_pairs(__m512 low, __m512 high) {
  const __m512i half = _mm512_set1_epi32(0x8000), top = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  const __m512i below = _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(low), half), 16);
  const __m512i above = _mm512_add_epi32(_mm512_castps_si512(high), half);
  return _mm512_ternarylogic_epi32(above, top, below, 0xe2);  // top ? above : below
}

// A group of nibbles: 16 pairs of inputs. A nibble is looked up, by the low four bits of its lane.
template <class F>
__attribute__((always_inline)) inline void dequantise_nibbles(const uint8_t* record, int group, uint8_t* out) {
  const __m512 values = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512 d = (__m512)F::scale(record, group, 0);
  const __m512 m = F::kMinimum ? (__m512)F::minimum(record, group, 0)
                               : _mm512_mul_ps(d, _mm512_set1_ps(static_cast<float>(-F::kOffset)));
#pragma GCC unroll 4
  for (int v = 0; v < 4; v++) {
    const __m512i packed = load<__m512i>(record + group * 256 + v * 64);
#pragma GCC unroll 4
    for (int pair = 0; pair < 4; pair++) {
      const unsigned shift = pair % 2 * 16 + pair / 2 * 4;
      const __m512 low = _mm512_permutexvar_ps(_mm512_srli_epi32(packed, shift), values);
      const __m512 high = _mm512_permutexvar_ps(_mm512_srli_epi32(packed, shift + 8), values);
      store(out + (4 * v + pair) * 64, round_pairs(_mm512_fmadd_ps(low, d, m), _mm512_fmadd_ps(high, d, m)));
    }
  }
}

// Byte kByte of each lane, u, as 256 + u: it is moved to the top of the fraction.
template <int kByte>
inline __m512 byte_and_256(__m512i lanes) {
  const __m512i moved = kByte < 2 ? _mm512_slli_epi32(lanes, 15 - 8 * kByte) : _mm512_srli_epi32(lanes, 8 * kByte - 15);
  const __m512i fraction = _mm512_set1_epi32(0xff << 15), exponent = _mm512_set1_epi32(0x43800000);
  // (moved & fraction) | exponent
  return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(moved, fraction, exponent, 0xea));
}

// A group of bytes. d has at most 18 bits, so d times 256 plus the offset is exact.
template <class F>
__attribute__((always_inline)) inline void dequantise_bytes(const uint8_t* record, int group, uint8_t* out) {
  static_assert(!F::kMinimum);
#pragma GCC unroll 2
  for (int run = 0; run < F::kScales; run++) {
    const __m512 d = (__m512)F::scale(record, group * F::kScales + run, 0);
    const __m512 m = _mm512_mul_ps(d, _mm512_set1_ps(static_cast<float>(-256 - F::kOffset)));
    constexpr int kQuads = 8 / F::kScales;
#pragma GCC unroll 8
    for (int quad = run * kQuads; quad < (run + 1) * kQuads; quad++) {
      const __m512i lanes = load<__m512i>(record + (group * 8 + quad) * 64);
      store(out + 2 * quad * 64, round_pairs(_mm512_fmadd_ps(byte_and_256<0>(lanes), d, m),
                                             _mm512_fmadd_ps(byte_and_256<1>(lanes), d, m)));
      store(out + (2 * quad + 1) * 64, round_pairs(_mm512_fmadd_ps(byte_and_256<2>(lanes), d, m),
                                                   _mm512_fmadd_ps(byte_and_256<3>(lanes), d, m)));
    }
  }
}

// One strip; `out` is kBf16Record bytes.
template <class F>
__attribute__((always_inline)) inline void dequantise_strip(const uint8_t* record, uint8_t* out) {
  for (int group = 0; group < 2; group++) {
    if constexpr (F::kTop == 15) {
      dequantise_nibbles<F>(record, group, out + group * (kBf16Record / 2));
    } else {
      dequantise_bytes<F>(record, group, out + group * (kBf16Record / 2));
    }
  }
}

}  // namespace samovar::SAMOVAR_ISA_NAMESPACE
