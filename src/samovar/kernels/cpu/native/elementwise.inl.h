// What a decoder layer does between its matrices: norm, rotation; and the greedy choice at the end.
#pragma once

#include <cmath>

#include "math.inl.h"

namespace samovar::SAMOVAR_ISA_NAMESPACE {

// Squares are summed in four accumulators by position, so that the order is the same for every row.
inline float mean_of_squares(const float* x, int n) {
  Floats sums[4] = {};
  int at = 0;
  for (; at + 4 * kWidth <= n; at += 4 * kWidth) {
    for (int i = 0; i < 4; i++) {
      Floats value = load<Floats>(x + at + i * kWidth);
      sums[i] = fma(value, value, sums[i]);
    }
  }
  for (int i = 0; at < n; at += kWidth, i++) {
    Floats value = load_some<Floats>(x + at, n - at < kWidth ? n - at : kWidth);
    sums[i] = fma(value, value, sums[i]);
  }
  return sum_lanes((sums[0] + sums[1]) + (sums[2] + sums[3])) / static_cast<float>(n);
}

// `out` may be `x`.
inline void rms_norm(const float* x, size_t ld, const float* weight, float eps, int rows, int n, float* out,
                     size_t out_ld) {
  for (int row = 0; row < rows; row++, x += ld, out += out_ld) {
    float factor = 1.0f / std::sqrt(mean_of_squares(x, n) + eps);
    int at = 0;
    for (; at + kWidth <= n; at += kWidth) {
      store(out + at, load<Floats>(x + at) * factor * load<Floats>(weight + at));
    }
    if (at < n) store_first(out + at, load_some<Floats>(x + at, n - at) * factor * load_some<Floats>(weight + at, n - at), n - at);
  }
}

// head_dim is a multiple of 32, so each half is whole vectors.
inline void rope(float* x, const float* cos, const float* sin, int head_dim) {
  const int half = head_dim / 2;
  for (int at = 0; at < half; at += kWidth) {
    Floats first = load<Floats>(x + at), second = load<Floats>(x + half + at);
    Floats c = load<Floats>(cos + at), s = load<Floats>(sin + at);
    store(x + at, fma(first, c, -(second * s)));
    store(x + half + at, fma(second, c, first * s));
  }
}

inline void exponentials(const float* x, int n, float top, float factor, float* out) {
  int at = 0;
  for (; at + kWidth <= n; at += kWidth) store(out + at, exp((load<Floats>(x + at) - all(top)) * factor));
  if (at < n) store_first(out + at, exp((load_some<Floats>(x + at, n - at) - all(top)) * factor), n - at);
}

inline bool any_lane(Ints x) {
  int32_t any = 0;
  for (int lane = 0; lane < kWidth; lane++) any |= x[lane];
  return any != 0;
}

constexpr int kSearched = 512;  // values looked through at once for the largest

// NaN is never the largest; without any number the index is 0.
inline int argmax(const float* x, int n, bool* finite) {
  const float lowest = -std::numeric_limits<float>::infinity();
  Floats top = all(lowest);
  Ints odd_one{};  // x - x is 0 for finite values only, NaN otherwise
  for (int at = 0; at < n; at += kWidth) {
    int count = n - at < kWidth ? n - at : kWidth;
    Floats value = count == kWidth ? load<Floats>(x + at) : load_some<Floats>(x + at, count);
    odd_one |= (Ints)(value - value);
    if (count < kWidth) {
      for (int lane = count; lane < kWidth; lane++) value[lane] = lowest;
    }
    top = larger(top, value);
  }
  *finite = !any_lane(odd_one);
  const float largest = max_lanes(top);
  int at = 0;
  for (; at + kSearched <= n; at += kSearched) {
    Ints hits{};
    for (int i = 0; i < kSearched; i += kWidth) hits |= load<Floats>(x + at + i) == largest;
    if (any_lane(hits)) break;
  }
  for (; at < n; at++) {
    if (x[at] == largest) return at;
  }
  return 0;
}

}  // namespace samovar::SAMOVAR_ISA_NAMESPACE
