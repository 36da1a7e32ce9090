// Random inputs for the plain C++ tests, and bf16 rounding written independently of the kernels.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <random>

struct Random {
  std::mt19937 engine;
  int whole(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine); }
  float normal() { return std::normal_distribution<float>()(engine); }
  template <class T>
  T one_of(std::initializer_list<T> values) { return *(values.begin() + whole(0, static_cast<int>(values.size()) - 1)); }
};

inline uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline float from_bits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
inline float rounded_to_bf16(float x) {
  uint32_t bits = bits_of(x);
  return from_bits((bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000u);
}
