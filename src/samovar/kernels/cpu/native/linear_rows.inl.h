// The inner loops of linear: a few rows against a block or two of 16 outputs, all inputs in order, sums in registers.
// Every row goes through the same operations in the same order whatever the number of rows beside it.
#pragma once

#include <type_traits>

#include "linear_weights.inl.h"

namespace samovar::SAMOVAR_ISA_NAMESPACE {

// The unit of work is one block or a pair of them, `first` and `first + step`. Its sums go to a panel: [rows][32]
// floats, the outputs of the two side by side.
struct Blocks {
  int first;
  int count;
  int step;
};
constexpr int kPanelStride = 2 * kLanes;

// How far ahead of its use a block's memory is asked for. Measured: nearer or farther reads fewer bytes per second.
constexpr size_t kPrefetchBytes = 1024;

// Rows that share an unpacked weight: with sums, weights and scales they just fit the registers.
#if defined(__AVX512F__)
constexpr int kInt8Rows = 12, kFloatRows = 12;
#else
constexpr int kInt8Rows = 4, kFloatRows = 4;
#endif

// Rows whose whole sums grow side by side: a chain of dot products is longer than a core looks ahead.
#if defined(__AVX2__) && !defined(__AVX512F__)
constexpr int kTogether = 1;
#else
constexpr int kTogether = 4;
#endif

// Whole sums of run `run` (a group of 32 inputs, or half of one in q6_k) for rows [row, row + kTogether), as many of
// them as are below kRows.
template <class F, int kRows>
__attribute__((always_inline)) inline void whole_rows(const Ints* weights, const Activations& act, size_t row0, int row,
                                                      int run, Ints (&whole)[kTogether]) {
  constexpr int kInputs = kGroupK / F::kScales, kStep = quads_at_once<F::kTop>();
  const int8_t* q = act.q + row0 * act.stride + run * kInputs;
  const int32_t* sums = act.sum + row0 * (act.stride / 16) + run * (kInputs / 16);
#pragma GCC unroll 4
  for (int i = 0; i < kTogether; i++) {
    const int32_t* sum = sums + (row + i) * static_cast<size_t>(act.stride / 16);
    whole[i] = Ints{};
    if (F::kOffset != 0 && row + i < kRows) whole[i] = all(-F::kOffset * (F::kScales == 1 ? sum[0] + sum[1] : sum[0]));
  }
#pragma GCC unroll 8
  for (int quad = 0; quad < kInputs / 4; quad += kStep) {
#pragma GCC unroll 4
    for (int i = 0; i < kTogether; i++) {
      if (row + i >= kRows) continue;
      whole[i] = add_dot<F::kTop>(whole[i], weights + quad, q + (row + i) * static_cast<size_t>(act.stride) + 4 * quad);
    }
  }
}

// Adds a group of 32 inputs to the sums of kRows rows: runs in order of K, then the minimum.
template <class F, int kRows>
__attribute__((always_inline)) inline void add_group(const uint8_t* record, int group, int piece, int strip,
                                                     const Activations& act, size_t row0, Floats (&sums)[kRows]) {
  Ints weights[8];
  F::quads(record, group, piece, weights);
  Floats scales[F::kScales];
  for (int i = 0; i < F::kScales; i++) scales[i] = F::scale(record, group * F::kScales + i, piece);
  const Floats minimum = F::minimum(record, group, piece);
  const size_t groups = static_cast<size_t>(act.stride) / kGroupK, at = row0 * groups + 2 * strip + group;
#pragma GCC unroll 16
  for (int row = 0; row < kRows; row += kTogether) {
#pragma GCC unroll 2
    for (int run = 0; run < F::kScales; run++) {
      Ints whole[kTogether];
      whole_rows<F, kRows>(weights + run * 4, act, row0, row, (2 * strip + group) * F::kScales + run, whole);
#pragma GCC unroll 4
      for (int i = 0; i < kTogether; i++) {
        if (row + i >= kRows) continue;
        const Floats scale = all(act.scale[at + (row + i) * groups]);
        sums[row + i] = fma(to_floats(whole[i]), scales[run] * scale, sums[row + i]);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kTogether; i++) {
      if (!F::kMinimum || row + i >= kRows) continue;
      sums[row + i] = fma(minimum, all(act.scaled_sum[at + (row + i) * groups]), sums[row + i]);
    }
  }
}

// Rows [row, row + kRows) of an integer format against one block.
template <class F, int kRows>
void int8_rows(const Matrix& matrix, const Activations& act, size_t row, int block, float* panel) {
  constexpr size_t kRecord = strip_bytes(F::kFormat);
  for (int piece = 0; piece < kPieces; piece++) {
    const uint8_t* record = matrix.data + static_cast<size_t>(block) * matrix.strips * kRecord;
    Floats sums[kRows] = {};
    for (int strip = 0; strip < matrix.strips; strip++, record += kRecord) {
      prefetch(record + kPrefetchBytes, kRecord);
      for (int group = 0; group < 2; group++) add_group<F, kRows>(record, group, piece, strip, act, row, sums);
    }
    for (int r = 0; r < kRows; r++) store(panel + r * kPanelStride + piece * kWidth, sums[r]);
  }
}

// Rows of a bf16 matrix against a block or two.
template <int kRows, int kBlocks>
void bf16_rows(const Matrix& matrix, const Activations& act, size_t row, Blocks blocks, float* panel) {
  constexpr size_t kRecord = strip_bytes(Format::bf16);
  const size_t block_bytes = matrix.strips * kRecord, step_bytes = blocks.step * block_bytes;
  for (int piece = 0; piece < kPieces; piece++) {
    const uint8_t* weights = matrix.data + blocks.first * block_bytes + piece * kWidth * 4;
    const uint16_t* x = act.b + row * act.stride;
    Floats sums[kRows][kBlocks] = {};
    for (int strip = 0; strip < matrix.strips; strip++) {
      for (int b = 0; b < kBlocks; b++) prefetch(weights + b * step_bytes + kPrefetchBytes / kBlocks, kRecord);
      for (int pair = 0; pair < kStripK / 2; pair++, weights += kLanes * 4, x += 2) {
        Words w[kBlocks];
        for (int b = 0; b < kBlocks; b++) w[b] = load<Words>(weights + b * step_bytes);
#pragma GCC unroll 16
        for (int r = 0; r < kRows; r++) {
          for (int b = 0; b < kBlocks; b++) {
            sums[r][b] = dot_bf16(sums[r][b], w[b], x + static_cast<size_t>(r) * act.stride);
          }
        }
      }
    }
    for (int r = 0; r < kRows; r++) {
      for (int b = 0; b < kBlocks; b++) store(panel + r * kPanelStride + b * kLanes + piece * kWidth, sums[r][b]);
    }
  }
}

// Rows of an f32 matrix against a block or two.
template <int kRows, int kBlocks>
void f32_rows(const Matrix& matrix, const Activations& act, size_t row, Blocks blocks, float* panel) {
  constexpr size_t kRecord = strip_bytes(Format::f32);
  const size_t block_bytes = matrix.strips * kRecord, step_bytes = blocks.step * block_bytes;
  for (int piece = 0; piece < kPieces; piece++) {
    const uint8_t* weights = matrix.data + blocks.first * block_bytes + piece * kWidth * 4;
    const float* x = act.f + row * act.stride;
    Floats sums[kRows][kBlocks] = {};
    for (int strip = 0; strip < matrix.strips; strip++) {
      for (int b = 0; b < kBlocks; b++) prefetch(weights + b * step_bytes + kPrefetchBytes / kBlocks, kRecord);
      for (int input = 0; input < kStripK; input++, weights += kLanes * 4, x++) {
        Floats w[kBlocks];
        for (int b = 0; b < kBlocks; b++) w[b] = load<Floats>(weights + b * step_bytes);
#pragma GCC unroll 16
        for (int r = 0; r < kRows; r++) {
          const Floats value = all(x[static_cast<size_t>(r) * act.stride]);
          for (int b = 0; b < kBlocks; b++) sums[r][b] = fma(w[b], value, sums[r][b]);
        }
      }
    }
    for (int r = 0; r < kRows; r++) {
      for (int b = 0; b < kBlocks; b++) store(panel + r * kPanelStride + b * kLanes + piece * kWidth, sums[r][b]);
    }
  }
}

// Calls rows(n) with n = min(count, kMost): n is an integral_constant, so that the loops over it unroll.
// Returns n.
template <int kMost, class Rows>
inline int with_rows(int count, Rows&& rows) {
  if constexpr (kMost > 1) {
    if (count < kMost) return with_rows<kMost - 1>(count, rows);
  }
  rows(std::integral_constant<int, kMost>());
  return kMost;
}

template <class F>
void int8_panel(const Matrix& matrix, const Activations& act, int row0, int rows, Blocks blocks,
                float* panel) {
  for (int b = 0; b < blocks.count; b++) {
    for (int r = 0; r < rows;) {
      r += with_rows<kInt8Rows>(rows - r, [&](auto count) {
        int8_rows<F, count>(matrix, act, row0 + r, blocks.first + b * blocks.step,
                            panel + r * kPanelStride + b * kLanes);
      });
    }
  }
}

template <bool kBf16, int kBlocks>
void float_columns(const Matrix& matrix, const Activations& act, int row0, int rows, Blocks blocks, float* panel) {
  for (int r = 0; r < rows;) {
    r += with_rows<kFloatRows>(rows - r, [&](auto count) {
      float* to = panel + r * kPanelStride;
      if (kBf16) {
        bf16_rows<count, kBlocks>(matrix, act, row0 + r, blocks, to);
      } else {
        f32_rows<count, kBlocks>(matrix, act, row0 + r, blocks, to);
      }
    });
  }
}

template <bool kBf16>
void float_panel(const Matrix& matrix, const Activations& act, int row0, int rows, Blocks blocks,
                 float* panel) {
  if (blocks.count == 2) return float_columns<kBf16, 2>(matrix, act, row0, rows, blocks, panel);
  float_columns<kBf16, 1>(matrix, act, row0, rows, blocks, panel);
}

}  // namespace samovar::SAMOVAR_ISA_NAMESPACE
