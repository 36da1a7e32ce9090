// Rounding inputs to the form a matrix's format takes.
#pragma once

#include "linear_lanes.inl.h"
#include "math.inl.h"

namespace samovar::SAMOVAR_ISA_NAMESPACE {

// Below this a group is rounded to zeros: 127 / max|x| would not be finite for the smallest floats.
constexpr float kSmallestTop = 1e-30f;

// Where one strip of a row goes.
struct Int8Strip {
  int8_t* q;
  float* scale;
  int32_t* sum;
  float* scaled_sum;
};

// q = round(x * (127 / max|x|)). A group with an infinity or a NaN gets it as its scale, so that every output of the
// row shows it.
#if defined(__AVX512VNNI__)
inline void round_int8(const float* x, const Int8Strip& to) {
  __m512 in[4];
  __m512i size[4];
  for (int i = 0; i < 4; i++) {
    in[i] = load<__m512>(x + 16 * i);
    size[i] = _mm512_and_si512(_mm512_castps_si512(in[i]), _mm512_set1_epi32(0x7fffffff));
  }
  // Sizes compare like whole numbers, NaN above all. Lanes become [group 0, group 1, group 0, ...].
  const __m512i low = _mm512_max_epi32(size[0], size[1]), high = _mm512_max_epi32(size[2], size[3]);
  __m512i top = _mm512_max_epi32(_mm512_unpacklo_epi32(low, high), _mm512_unpackhi_epi32(low, high));
  top = _mm512_max_epi32(top, _mm512_shuffle_epi32(top, _MM_PERM_BADC));
  top = _mm512_max_epi32(top, _mm512_shuffle_i32x4(top, top, 0x4e));
  top = _mm512_max_epi32(top, _mm512_shuffle_i32x4(top, top, 0xb1));
  const __m128 tops = _mm_castsi128_ps(_mm512_castsi512_si128(top));
  const __m128 large = _mm_cmp_ps(tops, _mm_set1_ps(kSmallestTop), _CMP_NLT_UQ);
  const __m128 scale = _mm_and_ps(large, _mm_div_ps(tops, _mm_set1_ps(127.0f)));
  const __m512 inverse = _mm512_broadcast_f32x4(_mm_and_ps(large, _mm_div_ps(_mm_set1_ps(127.0f), tops)));
  __m512i q[4];
  for (int i = 0; i < 4; i++) {
    const __m512 factor = i < 2 ? _mm512_permute_ps(inverse, 0x00) : _mm512_permute_ps(inverse, 0x55);
    q[i] = _mm512_cvtps_epi32(_mm512_mul_ps(in[i], factor));
  }
  // Packing works within quarters: dword 4 a + b holds quad a of vector b.
  const __m512i packed = _mm512_packs_epi16(_mm512_packs_epi32(q[0], q[1]), _mm512_packs_epi32(q[2], q[3]));
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  store(to.q, _mm512_permutexvar_epi32(order, packed));
  __m512i sums = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), packed);
  sums = _mm512_add_epi32(sums, _mm512_shuffle_i32x4(sums, sums, 0x4e));
  sums = _mm512_add_epi32(sums, _mm512_shuffle_i32x4(sums, sums, 0xb1));
  const __m128i sixteens = _mm512_castsi512_si128(sums);
  store(to.sum, sixteens);
  const __m128i groups = _mm_hadd_epi32(sixteens, sixteens);
  _mm_storel_pi(reinterpret_cast<__m64*>(to.scale), scale);
  _mm_storel_pi(reinterpret_cast<__m64*>(to.scaled_sum), _mm_mul_ps(scale, _mm_cvtepi32_ps(groups)));
}
#else
inline void round_int8(const float* x, const Int8Strip& to) {
  for (int group = 0; group < 2; group++, x += kGroupK) {
    uint32_t bits[kGroupK], top = 0;
    std::memcpy(bits, x, sizeof bits);
    // Sizes compare like whole numbers, NaN above all.
    for (int i = 0; i < kGroupK; i++) {
      const uint32_t size = bits[i] & 0x7fffffffu;
      top = size > top ? size : top;
    }
    const float largest = bits_float(top);
    const bool finite = top < 0x7f800000u, rounded = finite && largest >= kSmallestTop;
    const float scale = rounded || !finite ? largest / 127.0f : 0.0f;
    const float inverse = rounded ? 127.0f / largest : 0.0f;
    int8_t* q = to.q + group * kGroupK;
    int32_t sums[2] = {0, 0};
    for (int half = 0; half < 2; half++) {
      for (int i = 16 * half; i < 16 * half + 16; i++) {
        // Adding 1.5 * 2^23 rounds to a whole number, to nearest even, in the low bits.
        const float shifted = (rounded ? x[i] * inverse : 0.0f) + 12582912.0f;
        q[i] = static_cast<int8_t>(static_cast<int32_t>(float_bits(shifted)) - 0x4b400000);
        sums[half] += q[i];
      }
      to.sum[2 * group + half] = sums[half];
    }
    to.scale[group] = scale;
    to.scaled_sum[group] = scale * static_cast<float>(sums[0] + sums[1]);
  }
}
#endif

// Whether quantised weights are made bf16, as they are for tiles.
#if defined(__AMX_TILE__)
constexpr bool kBf16Inputs = true;
#else
constexpr bool kBf16Inputs = false;
#endif

inline void round_strip(Format format, const float* x, const Activations& act, size_t at) {
  if (format == Format::bf16 || (kBf16Inputs && format != Format::f32)) {
    for (int i = 0; i < kStripK; i += kLanes) store(act.b + at + i, round_bf16(load<f32x16>(x + i)));
  } else if (format == Format::f32) {
    std::memcpy(act.f + at, x, sizeof(float) * kStripK);
  } else {
    round_int8(x, {act.q + at, act.scale + at / kGroupK, act.sum + at / 16, act.scaled_sum + at / kGroupK});
  }
}

inline void prepare(const Matrix& matrix, const float* x, size_t ld, int row0, int rows, const Activations& act) {
  const int whole = matrix.k / kStripK;
  for (int r = row0; r < row0 + rows; r++) {
    const float* in = x + r * ld;
    const size_t first = static_cast<size_t>(r) * act.stride;
    for (int strip = 0; strip < whole; strip++) {
      round_strip(matrix.format, in + strip * kStripK, act, first + strip * kStripK);
    }
    if (whole < matrix.strips) {
      float last[kStripK] = {};
      std::memcpy(last, in + whole * kStripK, sizeof(float) * (matrix.k - whole * kStripK));
      round_strip(matrix.format, last, act, first + whole * kStripK);
    }
  }
}

}  // namespace samovar::SAMOVAR_ISA_NAMESPACE
