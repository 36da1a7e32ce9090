// Products of rounded rows with packed matrices: which inner loop, how the work is cut to fit caches, what happens to
// the sums.
#pragma once

#include "linear_prepare.inl.h"
#include "linear_rows.inl.h"
#if defined(__AMX_TILE__)
#include "linear_amx.inl.h"
#endif

namespace samovar::SAMOVAR_ISA_NAMESPACE {

// Rows whose sums are kept on the stack (8 KB) before they are written out.
constexpr int kPanelRows = 64;
// Inputs that stay in the level 2 cache while all blocks pass by.
constexpr size_t kInputBytes = 1 << 20;

// Sums of rows [row0, row0 + rows) and one or two blocks.
using Panel = void (*)(const Matrix& matrix, const Activations& act, int row0, int rows, Blocks blocks, float* panel);

inline Panel panel_for([[maybe_unused]] Format format) {
#if !defined(__AMX_TILE__)
  switch (format) {
    case Format::q8: return int8_panel<Q8>;
    case Format::q4_0: return int8_panel<Q4_0>;
    case Format::q4_1: return int8_panel<Q4_1>;
    case Format::q4_k: return int8_panel<Q4_K>;
    case Format::q6_k: return int8_panel<Q6_K>;
    case Format::bf16: return float_panel<true>;
    case Format::f32: break;
  }
#endif
  return float_panel<false>;
}

// One block or pair after the other, its rows in panels of nearly equal size. Output: expect(row, rows, blocks) before
// the sums are computed, write(panel, row, rows, blocks) with them.
template <class Output>
inline void over_panels(const Matrix& matrix, const Activations& act, int row0, int rows,
                        Blocks (*unit)(int index, int first, int end), int first, int end, const Output& output) {
#if defined(__AMX_TILE__)
  if (over_tiles(matrix, act, row0, rows, unit, first, end, output)) return;
#endif
  const Panel sums = panel_for(matrix.format);
  alignas(64) float panel[kPanelRows * kPanelStride];
  const size_t input_bytes = static_cast<size_t>(rows) * act.stride * (matrix.format == Format::bf16 ? 2 : 1);
  const int panels = (rows + kPanelRows - 1) / kPanelRows, groups = static_cast<int>(input_bytes / kInputBytes) + 1;
  for (int group = 0; group < groups; group++) {
    const int panel0 = panels * group / groups, panel1 = panels * (group + 1) / groups;
    Blocks blocks;
    for (int index = 0; (blocks = unit(index, first, end)).count > 0; index++) {
      for (int p = panel0; p < panel1; p++) {
        const int low = static_cast<int>(static_cast<int64_t>(rows) * p / panels);
        const int count = static_cast<int>(static_cast<int64_t>(rows) * (p + 1) / panels) - low;
        output.expect(row0 + low, count, blocks);
        sums(matrix, act, row0 + low, count, blocks, panel);
        output.write(panel, row0 + low, count, blocks);
      }
    }
  }
}

// Columns of an output and what is added to them.
struct LinearOutput {
  const float* bias;
  bool add;
  float* out;
  size_t out_ld;
  int columns;

  void expect(int row, int rows, Blocks blocks) const {
    for (int r = row; r < row + rows; r++) {
      for (int b = 0; b < blocks.count; b++) __builtin_prefetch(out + r * out_ld + (blocks.first + b) * kLanes, 1);
    }
  }

  void write(const float* panel, int row, int rows, Blocks blocks) const {
    for (int b = 0; b < blocks.count; b++, panel += kLanes) {
      const int column = (blocks.first + b) * kLanes, count = columns - column < kLanes ? columns - column : kLanes;
      const f32x16 offset = bias == nullptr ? f32x16{} : load_first(bias + column, count);
      for (int r = 0; r < rows; r++) {
        float* to = out + (row + r) * out_ld + column;
        f32x16 sum = load<f32x16>(panel + r * kPanelStride);
        if (bias != nullptr) sum += offset;
        if (count == kLanes) {
          store(to, add ? load<f32x16>(to) + sum : sum);
        } else {
          store_first(to, add ? load_first(to, count) + sum : sum, count);
        }
      }
    }
  }
};

inline Blocks adjacent_blocks(int index, int first, int end) {
  const int block = first + 2 * index;
  return {block, end - block < 2 ? (end > block ? end - block : 0) : 2, 1};
}

inline void linear(const Matrix& matrix, const Activations& act, int row0, int rows, int block0, int blocks,
                   const float* bias, bool add, float* out, size_t out_ld) {
  if (rows <= 0) return;
  over_panels(matrix, act, row0, rows, adjacent_blocks, block0, block0 + blocks,
              LinearOutput{bias, add, out, out_ld, matrix.n});
}

// A pair is a block of gates and the block of their ups.
struct SwigluOutput {
  const float* bias;
  float* out;
  size_t out_ld;

  static int column(Blocks blocks) { return (blocks.first / 4 * 2 + blocks.first % 4) * kLanes; }

  void expect(int row, int rows, Blocks blocks) const {
    for (int r = row; r < row + rows; r++) __builtin_prefetch(out + r * out_ld + column(blocks), 1);
  }

  void write(const float* panel, int row, int rows, Blocks blocks) const {
    f32x16 gate_bias{}, up_bias{};
    if (bias != nullptr) {
      gate_bias = load<f32x16>(bias + blocks.first * kLanes);
      up_bias = load<f32x16>(bias + (blocks.first + blocks.step) * kLanes);
    }
    for (int r = 0; r < rows; r++) {
      f32x16 gate = load<f32x16>(panel + r * kPanelStride), up = load<f32x16>(panel + r * kPanelStride + kLanes);
      if (bias != nullptr) gate += gate_bias, up += up_bias;
      store(out + (row + r) * out_ld + column(blocks), silu(gate) * up);
    }
  }
};

inline Blocks gate_and_up(int index, int first, int end) {
  const int group = first + index / 2;
  return {4 * group + index % 2, group < end ? 2 : 0, 2};
}

inline void linear_swiglu(const Matrix& matrix, const Activations& act, int row0, int rows, int group0, int groups,
                          const float* bias, float* out, size_t out_ld) {
  if (rows <= 0) return;
  over_panels(matrix, act, row0, rows, gate_and_up, group0, group0 + groups,
              SwigluOutput{bias, out, out_ld});
}

// One lane of an integer format's group of 32.
template <class F>
void dequantize_strips(const Matrix& matrix, int row, float* out) {
  const int lane = row % kLanes, piece = lane / kWidth, at = lane % kWidth;
  for (int group = 0; group * kGroupK < matrix.k; group++) {
    const uint8_t* record = matrix.strip(row / kLanes, group / 2);
    Ints quads[8];
    F::quads(record, group % 2, piece, quads);
    const float minimum = F::minimum(record, group % 2, piece)[at];
    for (int i = 0; i < kGroupK && group * kGroupK + i < matrix.k; i++) {
      const int scale = group % 2 * F::kScales + (F::kScales == 2 ? i / 16 : 0);
      const int byte = (static_cast<uint32_t>(quads[i / 4][at]) >> (i % 4 * 8)) & 255;
      const int weight = F::kOffset == 0 && F::kTop == 255 ? static_cast<int8_t>(byte) : byte - F::kOffset;
      const float value = F::scale(record, scale, piece)[at] * static_cast<float>(weight);
      out[group * kGroupK + i] = F::kMinimum ? value + minimum : value;
    }
  }
}

inline void dequantize_row(const Matrix& matrix, int row, float* out) {
  switch (matrix.format) {
    case Format::q8: return dequantize_strips<Q8>(matrix, row, out);
    case Format::q4_0: return dequantize_strips<Q4_0>(matrix, row, out);
    case Format::q4_1: return dequantize_strips<Q4_1>(matrix, row, out);
    case Format::q4_k: return dequantize_strips<Q4_K>(matrix, row, out);
    case Format::q6_k: return dequantize_strips<Q6_K>(matrix, row, out);
    case Format::bf16:
      for (int i = 0; i < matrix.k; i++) {
        const uint8_t* record = matrix.strip(row / kLanes, i / kStripK);
        out[i] = bf16_to_float(load<uint16_t>(record + ((i % kStripK / 2 * kLanes + row % kLanes) * 2 + i % 2) * 2));
      }
      return;
    case Format::f32:
      for (int i = 0; i < matrix.k; i++) {
        out[i] = load<float>(matrix.strip(row / kLanes, i / kStripK) + (i % kStripK * kLanes + row % kLanes) * 4);
      }
      return;
  }
}

}  // namespace samovar::SAMOVAR_ISA_NAMESPACE
