// Sixteen lanes for every instruction set, written once. Included by the kernels of one instruction set only, inside
// its own namespace (SAMOVAR_ISA_NAMESPACE): each such file is compiled with its own flags, with -ffp-contract=off, so a
// product and a sum are fused exactly where `fma` is written.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace samovar::SAMOVAR_ISA_NAMESPACE {

typedef float f32x16 __attribute__((vector_size(64)));
typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef uint32_t u32x16 __attribute__((vector_size(64)));
typedef uint8_t u8x64 __attribute__((vector_size(64)));
typedef int8_t i8x64 __attribute__((vector_size(64)));

template <class V>
inline V load(const void* at) {
  V value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
template <class V>
inline void store(void* at, const V& value) {
  std::memcpy(at, &value, sizeof value);
}
// Spelt out: 0 + x is no copy where x is -0, so the compiler would have to add.
inline f32x16 splat(float x) { return f32x16{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }
inline i32x16 splat(int32_t x) { return i32x16{} + x; }

inline f32x16 fma(f32x16 a, f32x16 b, f32x16 c) {
#if defined(__AVX512F__)
  return (f32x16)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
  f32x16 out;
  for (int h = 0; h < 2; h++) {
    __m256 r = _mm256_fmadd_ps(_mm256_loadu_ps((const float*)&a + 8 * h), _mm256_loadu_ps((const float*)&b + 8 * h),
                               _mm256_loadu_ps((const float*)&c + 8 * h));
    std::memcpy((float*)&out + 8 * h, &r, 32);
  }
  return out;
#elif defined(__aarch64__)
  f32x16 out;
  for (int h = 0; h < 4; h++) {
    float32x4_t r = vfmaq_f32(vld1q_f32((const float*)&c + 4 * h), vld1q_f32((const float*)&a + 4 * h),
                              vld1q_f32((const float*)&b + 4 * h));
    std::memcpy((float*)&out + 4 * h, &r, 16);
  }
  return out;
#else
  return a * b + c;
#endif
}

inline f32x16 to_f32(i32x16 x) { return __builtin_convertvector(x, f32x16); }

}  // namespace samovar::SAMOVAR_ISA_NAMESPACE
