// The softmax of attention with AMX: the dots of up to 16 rows become weights in the same place. Four rows at a time, whose
// largest dots are found together; those of all rows first, as their dependent steps would hold up the exponentials.
#pragma once

#include "attention_rows.inl.h"

namespace samovar::SAMOVAR_ISA_NAMESPACE {

// A cell is what one AMX tile holds, [16 rows][64 bytes], without gaps: floats, or bf16 in pairs.
constexpr int kCellRows = 16;
constexpr int kCellFloats = kCellRows * kLanes;
constexpr int kCellHalves = 2 * kCellFloats;
constexpr int kWeighedTogether = 4;

// The largest lanes of four vectors, side by side, in each quarter of the result.
inline Floats largest_lanes(const Floats (&x)[kWeighedTogether]) {
  const auto of_two = [](Floats a, Floats b) {
    return larger((Floats)_mm512_unpacklo_ps((__m512)a, (__m512)b), (Floats)_mm512_unpackhi_ps((__m512)a, (__m512)b));
  };
  const __m512d first = (__m512d)of_two(x[0], x[1]), second = (__m512d)of_two(x[2], x[3]);
  Floats top = larger((Floats)_mm512_unpacklo_pd(first, second), (Floats)_mm512_unpackhi_pd(first, second));
  top = larger(top, (Floats)_mm512_shuffle_f32x4((__m512)top, (__m512)top, 0x4e));
  return larger(top, (Floats)_mm512_shuffle_f32x4((__m512)top, (__m512)top, 0xb1));
}

// Four rows' dots with `tiles` tiles of keys: row r's with tile t at dots + t * 256 + r * 16. What a row does not see
// becomes -inf, whatever stood there.
inline void hide_unseen(const int* visible, int tiles, float* dots) {
  const __m512 lowest = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  for (int t = visible[0] / kTileTokens; t < tiles; t++) {
    for (int r = 0; r < kWeighedTogether; r++) {
      const int seen = visible[r] - t * kTileTokens;
      const __mmask16 mask = seen <= 0 ? 0 : seen >= kTileTokens ? 0xffff : (1u << seen) - 1;
      float* at = dots + t * kCellFloats + r * kLanes;
      store(at, _mm512_mask_loadu_ps(lowest, mask, at));
    }
  }
}

// Sets the largest scores [4] of four rows, and offsets [4]: a weight is exp2(dot * scale * log2(e) + offset).
inline void find_tops(const int* visible, int tiles, float scale, const float* dots, float* top, float* offsets) {
  Floats tops[kWeighedTogether];
#pragma GCC unroll 4
  for (int r = 0; r < kWeighedTogether; r++) tops[r] = all(-std::numeric_limits<float>::infinity());
  for (int t = 0; t < tiles; t++) {
#pragma GCC unroll 4
    for (int r = 0; r < kWeighedTogether; r++) {
      tops[r] = larger(tops[r], load<Floats>(dots + t * kCellFloats + r * kLanes));
    }
  }
  const Floats largest = largest_lanes(tops);
  _mm_storeu_ps(top, _mm512_castps512_ps128((__m512)(largest * scale)));
  _mm_storeu_ps(offsets, _mm512_castps512_ps128((__m512)-(largest * (scale * kLog2E))));
  // A row that sees nothing has no largest dot to subtract; all its weights become 0.
  for (int r = 0; r < kWeighedTogether && visible[r] == 0; r++) offsets[r] = 0.0f;
}

// Four rows' dots with an even number of tiles become weights, rounded to bf16. Those of tiles 2 s and 2 s + 1 lie, in
// the order of tokens, where the dots of tile 2 s were.
inline void weigh_four(const float* offsets, int tiles, float scale, float* dots) {
  const Floats factor = all(scale * kLog2E);
  Floats offset[kWeighedTogether];
#pragma GCC unroll 4
  for (int r = 0; r < kWeighedTogether; r++) offset[r] = all(offsets[r]);
  for (int t = 0; t < tiles; t += 2) {
#pragma GCC unroll 4
    for (int r = 0; r < kWeighedTogether; r++) {
      float* at = dots + t * kCellFloats + r * kLanes;
      const Floats first = exp2_coarse(fma(load<Floats>(at), factor, offset[r]));
      const Floats second = exp2_coarse(fma(load<Floats>(at + kCellFloats), factor, offset[r]));
      store(at, _mm512_cvtne2ps_pbh((__m512)second, (__m512)first));
    }
  }
}

// Dots [tiles][16 rows][16 tokens] become weights, exp(scale * (dot - largest)), zero where a row does not see: `visible`
// tokens each. `tiles` is even; what stands where no row sees may be anything. Rows are taken four at a time: the arrays
// go on behind the last one.
inline void weigh_block(const int* visible, int rows, int tiles, float scale, float* dots, float* top) {
  alignas(64) float offsets[kCellRows];
  for (int r = 0; r < rows; r += kWeighedTogether) {
    hide_unseen(visible + r, tiles, dots + r * kLanes);
    find_tops(visible + r, tiles, scale, dots + r * kLanes, top + r, offsets + r);
  }
  for (int r = 0; r < rows; r += kWeighedTogether) weigh_four(offsets + r, tiles, scale, dots + r * kLanes);
}

}  // namespace samovar::SAMOVAR_ISA_NAMESPACE
