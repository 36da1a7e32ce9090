// Products of rounded rows with packed matrices: which inner loop, how the work is cut to fit caches, what happens to
// the sums.
#pragma once

#include "linear_prepare.inl.h"
#include "linear_rows.inl.h"
#if defined(__AMX_TILE__)
#include "linear_amx.inl.h"
#endif

namespace samovar::SAMOVAR_ISA_NAMESPACE {

// Rows whose sums are kept on the stack (34 KB) before they are written out, and the room for the last tile's.
constexpr int kPanelRows = 256, kPanelRoom = kPanelRows + kLanes;
// Inputs that stay in the level 2 cache while all blocks pass by.
constexpr size_t kInputBytes = 1 << 20;

// Sums of rows [row0, row0 + rows) and one or two blocks. tile_rows is for AMX: the height of its tiles, at most rows.
using Panel = void (*)(const Matrix& matrix, const Activations& act, int row0, int rows, Blocks blocks, int tile_rows,
                       float* panel);

// How one call of linear goes: its inner loop, and its rows in so many panels of nearly equal size.
struct Plan {
  Panel panel;
  int panels;
  int tile_rows = 0;
  int tile_input_bytes = 0;
};

#if !defined(__AMX_TILE__)
struct RowTiles {
  RowTiles(int, int) {}
};
#endif

inline int pieces_of(int count, int most) { return (count + most - 1) / most; }

inline Plan plan_vectors(Panel panel, int rows) { return {panel, pieces_of(rows, kPanelRows / 4)}; }

// Tiles as low as the fewest of them allow: lower ones take less time.
inline Plan plan_tiles(Panel panel, int rows, int panel_rows, int input_bytes) {
  const int panels = pieces_of(rows, panel_rows), largest = pieces_of(rows, panels);
  return {panel, panels, pieces_of(largest, pieces_of(largest, kLanes)), input_bytes};
}

template <class F>
Plan plan_int8(int rows) {
#if defined(__AMX_TILE__)
  // Unpacking a block's weights for tiles is paid once per panel.
  if (rows >= kRowsWorthTiles) return plan_tiles(int8_tiles<F>, rows, kPanelRows, kGroupK / F::kScales);
#endif
  return plan_vectors(int8_panel<F>, rows);
}

inline Plan plan_for(const Matrix& matrix, int rows) {
  switch (matrix.format) {
    case Format::q8: return plan_int8<Q8>(rows);
    case Format::q4_0: return plan_int8<Q4_0>(rows);
    case Format::q4_1: return plan_int8<Q4_1>(rows);
    case Format::q4_k: return plan_int8<Q4_K>(rows);
    case Format::q6_k: return plan_int8<Q6_K>(rows);
    case Format::bf16:
#if defined(__AMX_TILE__)
      return plan_tiles(bf16_tiles, rows, bf16_panel_rows(matrix.strips), 64);
#else
      return plan_vectors(float_panel<true>, rows);
#endif
    case Format::f32: break;
  }
  return plan_vectors(float_panel<false>, rows);
}

// Runs the plan for one block or pair after the other. Output: expect(row, rows, blocks) before the sums are computed,
// write(panel, row, rows, blocks) with them.
template <class Output>
inline void over_panels(const Matrix& matrix, const Activations& act, int row0, int rows, const Plan& plan,
                        Blocks (*unit)(int index, int first, int end), int first, int end, const Output& output) {
  const RowTiles tiles(plan.tile_rows, plan.tile_input_bytes);
  alignas(64) float panel[kPanelRoom * kPanelStride];
  const size_t input_bytes = static_cast<size_t>(rows) * act.stride * (matrix.format == Format::bf16 ? 2 : 1);
  const int groups = static_cast<int>(input_bytes / kInputBytes) + 1;
  for (int group = 0; group < groups; group++) {
    const int panel0 = plan.panels * group / groups, panel1 = plan.panels * (group + 1) / groups;
    Blocks blocks;
    for (int index = 0; (blocks = unit(index, first, end)).count > 0; index++) {
      for (int p = panel0; p < panel1; p++) {
        const int low = static_cast<int>(static_cast<int64_t>(rows) * p / plan.panels);
        const int count = static_cast<int>(static_cast<int64_t>(rows) * (p + 1) / plan.panels) - low;
        blocks.fresh = p == panel0;
        output.expect(row0 + low, count, blocks);
        plan.panel(matrix, act, row0 + low, count, blocks, plan.tile_rows, panel);
        // The last tile repeats rows of the one before: leave them out.
        const int whole = plan.tile_rows == 0 ? count : (count - 1) / plan.tile_rows * plan.tile_rows;
        output.write(panel, row0 + low, whole, blocks);
        if (whole == count) continue;
        const int behind = 2 * whole + plan.tile_rows - count;
        output.write(panel + behind * kPanelStride, row0 + low + whole, count - whole, blocks);
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
  return {block, end - block < 2 ? (end > block ? end - block : 0) : 2, 1, true};
}

inline void linear(const Matrix& matrix, const Activations& act, int row0, int rows, int block0, int blocks,
                   const float* bias, bool add, float* out, size_t out_ld) {
  if (rows <= 0) return;
  over_panels(matrix, act, row0, rows, plan_for(matrix, rows), adjacent_blocks, block0, block0 + blocks,
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
  return {4 * group + index % 2, group < end ? 2 : 0, 2, true};
}

inline void linear_swiglu(const Matrix& matrix, const Activations& act, int row0, int rows, int group0, int groups,
                          const float* bias, float* out, size_t out_ld) {
  if (rows <= 0) return;
  over_panels(matrix, act, row0, rows, plan_for(matrix, rows), gate_and_up, group0, group0 + groups,
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
