// Conversions between f32 and the two 16-bit floats, for packing, single rows and instruction sets without their own.
// `static`: every instruction set compiles its own copy, and a linker that kept one for all might keep the wrong one.
#pragma once

#include <cstdint>
#include <cstring>

namespace samovar {

static inline uint32_t float_bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
static inline float bits_float(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

static inline float bf16_to_float(uint16_t x) { return bits_float(static_cast<uint32_t>(x) << 16); }

// Round to nearest even; a NaN stays a (quiet) NaN.
static inline uint16_t float_to_bf16(float x) {
  const uint32_t bits = float_bits(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Exact. The exponent is moved by multiplying with 2^112, which normalises subnormals on the way.
static inline float half_to_float(uint16_t x) {
  const uint32_t sign = static_cast<uint32_t>(x & 0x8000) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(x & 0x7fff) << 13;
  if (magnitude >= 0x0f800000u) return bits_float(sign | 0x70000000u | magnitude);  // inf, NaN
  return bits_float(sign | float_bits(bits_float(magnitude) * 0x1p112f));
}

// Round to nearest even; too large becomes infinite.
static inline uint16_t float_to_half(float x) {
  const uint32_t bits = float_bits(x);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00;
  if (magnitude >= 0x477ff000u) return sign | 0x7c00;
  if (magnitude < 0x38800000u) {  // subnormal in f16: adding 0.5 leaves its units of 2^-24 in the low bits, rounded
    return static_cast<uint16_t>(sign | (float_bits(bits_float(magnitude) + 0.5f) - 0x3f000000u));
  }
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfff + ((magnitude >> 13) & 1)) >> 13));
}

}  // namespace samovar
