// How fast this instruction set multiplies when nothing holds it up: the inner loops of linear over a few cache lines,
// without scales, rounding or results. Benchmarks compare the kernels with it.
#pragma once

#include "linear.inl.h"

namespace samovar::SAMOVAR_ISA_NAMESPACE {

// Makes the compiler load from memory anew, and keep what was stored.
inline void forget_memory() { __asm__ volatile("" ::: "memory"); }

#if defined(__AMX_TILE__)

inline int64_t multiply(bool int8, int64_t repeats) {
  const Tiles configured = row_tiles(16);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (int64_t i = 0; i < repeats; i++) {
    if (int8) {
      _tile_dpbssd(0, 4, 6);
      _tile_dpbssd(1, 4, 7);
      _tile_dpbssd(2, 5, 6);
      _tile_dpbssd(3, 5, 7);
    } else {
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  return repeats * 4 * 2 * 16 * 16 * (int8 ? 64 : 32);
}

#else

inline int64_t multiply(bool int8, int64_t repeats) {
  alignas(64) Ints weights[8];
  alignas(64) int8_t q[kInt8Rows][kGroupK];
  alignas(64) uint16_t pairs[kFloatRows][2];
  alignas(64) Ints whole[kInt8Rows] = {};
  alignas(64) Floats sums[2 * kFloatRows] = {};
  std::memset(weights, 1, sizeof weights);
  std::memset(q, 1, sizeof q);
  std::memset(pairs, 0, sizeof pairs);
  Ints whole_now[kInt8Rows] = {};
  Floats now[2 * kFloatRows] = {};
  for (int64_t i = 0; i < repeats; i++) {
    forget_memory();
    if (int8) {
#pragma GCC unroll 16
      for (int r = 0; r < kInt8Rows; r++) whole_now[r] += dot<15, 8>(weights, q[r]);
    } else {
      for (int w = 0; w < 8; w += 2) {
#pragma GCC unroll 16
        for (int r = 0; r < kFloatRows; r++) {
          now[2 * r] = dot_bf16(now[2 * r], (Words)weights[w], pairs[r]);
          now[2 * r + 1] = dot_bf16(now[2 * r + 1], (Words)weights[w + 1], pairs[r]);
        }
      }
    }
  }
  for (int r = 0; r < kInt8Rows; r++) whole[r] = whole_now[r];
  for (int r = 0; r < 2 * kFloatRows; r++) sums[r] = now[r];
  __asm__ volatile("" ::"r"(whole), "r"(sums) : "memory");
  return repeats * 2 * kWidth * (int8 ? kInt8Rows * kGroupK : kFloatRows * 2 * 8);
}

#endif

}  // namespace samovar::SAMOVAR_ISA_NAMESPACE
