// Linear with AMX tiles: inputs and weights as bf16, all of K summed in f32 by the tiles, in steps of 32 inputs in
// order. That is so for one row and for many: a row's sums depend on nothing but the row. Quantised weights are made
// bf16 in scratch that stays in the caches; f32 matrices are left to the vectors.
#pragma once

#include <algorithm>

#include "amx.inl.h"
#include "linear_dequantise.inl.h"
#include "linear_rows.inl.h"

namespace samovar::SAMOVAR_ISA_NAMESPACE {

struct BF16 {
  static constexpr Format kFormat = Format::bf16;
};

// The tiles of one call: 0-3 sums [rows][16], 4 and 5 inputs [rows][32], 6 and 7 weights [16 pairs][16 outputs][2].
inline Tiles row_tiles(int rows) {
  const TileShape some{static_cast<uint8_t>(rows), 64}, all{};
  const TileShape shapes[8] = {some, some, some, some, some, some, all, all};
  return Tiles(shapes);
}

// Row tiles of a call all have the same height; the last begins so much earlier that it ends with the rows, and
// computes some of them twice.
inline int tile_start(int tile, int tile_rows, int rows) {
  const int start = tile * tile_rows;
  return start < rows - tile_rows ? start : rows - tile_rows;
}

constexpr int kPanelBytes = kPanelStride * sizeof(float);
constexpr size_t kTileBytes = 1024;

// Rows of a decode step, in up to four row tiles: what takes the time is reading the weights, so they pass by once, one
// block in one stretch.
constexpr int kFewTiles = 4, kFewRows = kFewTiles * kLanes;
// How far ahead of its use a record is asked for. Measured: a page of memory; much nearer is a quarter slower.
constexpr size_t kFewAheadBytes = 4096;

// Rows [0, rows) at x against one block; sums to panel. While the tiles work on one strip, the next is made bf16.
template <class F, int kTiles>
void few_row_sums(const uint8_t* record, int strips, const uint16_t* x, size_t stride, int rows, int tile_rows,
                  float* panel) {
  constexpr size_t kRecord = strip_bytes(F::kFormat);
  constexpr bool kInPlace = F::kFormat == Format::bf16;
  alignas(64) uint8_t scratch[kInPlace ? 1 : 2][kInPlace ? 1 : kBf16Record];
  const uint16_t* in[kTiles];
  for (int t = 0; t < kTiles; t++) in[t] = x + tile_start(t, tile_rows, rows) * stride;
  const size_t x_bytes = stride * sizeof *x;
  _tile_zero(0);
  if (kTiles > 1) _tile_zero(1);
  if (kTiles > 2) _tile_zero(2);
  if (kTiles > 3) _tile_zero(3);
  if constexpr (!kInPlace) dequantise_strip<F>(record, scratch[0]);
  for (int strip = 0; strip < strips; strip++, record += kRecord) {
    prefetch(record + kFewAheadBytes, kRecord);
    const uint8_t* weights = record;
    if constexpr (!kInPlace) {
      weights = scratch[strip % 2];
      if (strip + 1 < strips) dequantise_strip<F>(record + kRecord, scratch[(strip + 1) % 2]);
      tiles_will_read(scratch);
    }
    // Tiles are written as literals: the intrinsics paste them into the assembly.
#define SAMOVAR_ROW_TILE(tile, inputs_tile, weights_tile, half)                                          \
  if constexpr (kTiles > tile) {                                                                         \
    _tile_loadd(inputs_tile, in[tile] + strip * kStripK + half * 32, x_bytes);                           \
    _tile_dpbf16ps(tile, inputs_tile, weights_tile);                                                     \
  }
#define SAMOVAR_HALF_STRIP(half, weights_tile)                    \
  _tile_loadd(weights_tile, weights + half * kTileBytes, 64);     \
  SAMOVAR_ROW_TILE(0, 4, weights_tile, half)                      \
  SAMOVAR_ROW_TILE(1, 5, weights_tile, half)                      \
  SAMOVAR_ROW_TILE(2, 4, weights_tile, half)                      \
  SAMOVAR_ROW_TILE(3, 5, weights_tile, half)
    SAMOVAR_HALF_STRIP(0, 6)
    SAMOVAR_HALF_STRIP(1, 7)
#undef SAMOVAR_HALF_STRIP
#undef SAMOVAR_ROW_TILE
  }
  _tile_stored(0, panel, kPanelBytes);
  if (kTiles > 1) _tile_stored(1, panel + tile_start(1, tile_rows, rows) * kPanelStride, kPanelBytes);
  if (kTiles > 2) _tile_stored(2, panel + tile_start(2, tile_rows, rows) * kPanelStride, kPanelBytes);
  if (kTiles > 3) _tile_stored(3, panel + tile_start(3, tile_rows, rows) * kPanelStride, kPanelBytes);
}

// Blocks for an output: unit(index, first, end) gives one or two at a time, none behind the last.
using Units = Blocks (*)(int index, int first, int end);

template <class F, class Output>
void over_few_rows(const Matrix& matrix, const Activations& act, int row0, int rows, Units unit, int first, int end,
                   const Output& output) {
  const int tiles = (rows + kLanes - 1) / kLanes, tile_rows = (rows + tiles - 1) / tiles;
  const Tiles configured = row_tiles(tile_rows);
  const uint16_t* x = act.b + static_cast<size_t>(row0) * act.stride;
  alignas(64) float panel[kFewRows * kPanelStride];
  Blocks blocks;
  for (int index = 0; (blocks = unit(index, first, end)).count > 0; index++) {
    output.expect(row0, rows, blocks);
    for (int b = 0; b < blocks.count; b++) {
      const uint8_t* records = matrix.strip(blocks.first + b * blocks.step, 0);
      with_rows<kFewTiles>(tiles, [&](auto count) {
        few_row_sums<F, count>(records, matrix.strips, x, act.stride, rows, tile_rows, panel + b * kLanes);
      });
    }
    output.write(panel, row0, rows, blocks);
  }
}

// Strips of two row tiles' inputs (4 KB each) that stay in the level 1 cache while all units of a group pass by.
constexpr int kRunStrips = 10;

// Two row tiles against one or two blocks of bf16 weights, in a run of strips; the sums begin, or add to those in the
// panels, one per row tile. Weights are loaded with the hint to leave the inputs in the level 1 cache. ahead(step) asks
// for memory that is written next: spread over the steps, since a burst would hold up the loads.
template <int kBlocks, class Ahead>
inline void tile_pair_sums(const uint8_t* weights, size_t step_bytes, int strips, bool begin, const uint16_t* x0,
                           const uint16_t* x1, size_t x_bytes, float* panel0, float* panel1, const Ahead& ahead) {
  if (begin) {
    _tile_zero(0);
    _tile_zero(2);
    if (kBlocks == 2) _tile_zero(1);
    if (kBlocks == 2) _tile_zero(3);
  } else {
    _tile_loadd(0, panel0, kPanelBytes);
    _tile_loadd(2, panel1, kPanelBytes);
    if (kBlocks == 2) _tile_loadd(1, panel0 + kLanes, kPanelBytes);
    if (kBlocks == 2) _tile_loadd(3, panel1 + kLanes, kPanelBytes);
  }
  for (int step = 0; step < 2 * strips; step++, weights += kTileBytes, x0 += 32, x1 += 32) {
    ahead(step);
    _tile_loadd(4, x0, x_bytes);
    _tile_stream_loadd(6, weights, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, x1, x_bytes);
    _tile_dpbf16ps(2, 5, 6);
    if (kBlocks == 2) _tile_stream_loadd(7, weights + step_bytes, 64);
    if (kBlocks == 2) _tile_dpbf16ps(1, 4, 7);
    if (kBlocks == 2) _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, panel0, kPanelBytes);
  _tile_stored(2, panel1, kPanelBytes);
  if (kBlocks == 2) _tile_stored(1, panel0 + kLanes, kPanelBytes);
  if (kBlocks == 2) _tile_stored(3, panel1 + kLanes, kPanelBytes);
}

// A group of units (pairs of blocks) whose weights are made bf16 before rows pass by: as many as fit this scratch, half
// a level 2 cache, one per thread that ever gets here. (The inputs of all rows pass by once per group, and all of them
// do not fit that cache beside the outputs: few groups are better.) Their number bounds the sums on the stack, 64 KB.
constexpr size_t kScratchBytes = 1 << 20;
constexpr int kMostUnits = 16;
struct alignas(64) WeightScratch {
  uint8_t bytes[kScratchBytes];
};
inline uint8_t* weight_scratch() {
  static thread_local WeightScratch scratch;
  return scratch.bytes;
}
inline bool fits_scratch(const Matrix& matrix) { return 2 * matrix.strips * kBf16Record <= kScratchBytes; }

// One or two blocks with their weights as bf16.
struct Unit {
  Blocks blocks;
  const uint8_t* weights;
  size_t step_bytes;
};

template <class F>
Unit as_bf16(const Matrix& matrix, Blocks blocks, uint8_t* scratch) {
  constexpr size_t kRecord = strip_bytes(F::kFormat);
  const size_t block_bytes = matrix.strips * kBf16Record;
  if constexpr (F::kFormat == Format::bf16) {
    return {blocks, matrix.strip(blocks.first, 0), blocks.step * block_bytes};
  } else {
    for (int b = 0; b < blocks.count; b++) {
      const uint8_t* record = matrix.strip(blocks.first + b * blocks.step, 0);
      for (int strip = 0; strip < matrix.strips; strip++, record += kRecord) {
        prefetch(record + kPrefetchBytes, kRecord);
        dequantise_strip<F>(record, scratch + b * block_bytes + strip * kBf16Record);
      }
    }
    return {blocks, scratch, block_bytes};
  }
}

// One panel of rows, two row tiles, against a group of units.
struct PanelRows {
  const uint16_t* x;
  size_t stride;
  int tile_rows;
  int first, count;  // rows of the output; the panel may begin with some that are already written
};

template <class Output>
inline void panel_sums(const Unit* units, int count, int strips, const PanelRows& rows, const Output& output,
                       float (*sums)[2 * kLanes * kPanelStride]) {
  const int runs = (strips + kRunStrips - 1) / kRunStrips;
  for (int run = 0; run < runs; run++) {
    const int low = strips * run / runs, length = strips * (run + 1) / runs - low;
    const uint16_t* x = rows.x + low * kStripK;
    for (int u = 0; u < count; u++) {
      const Unit& unit = units[u];
      const auto ahead = [&](int step) {
        if (run + 1 == runs && 2 * step < rows.count) {
          output.expect(rows.first + 2 * step, rows.count - 2 * step < 2 ? 1 : 2, unit.blocks);
        }
      };
      const auto add = [&](auto blocks) {
        tile_pair_sums<blocks>(unit.weights + low * kBf16Record, unit.step_bytes, length, run == 0, x,
                               x + rows.tile_rows * rows.stride, rows.stride * sizeof *x, sums[u],
                               sums[u] + rows.tile_rows * kPanelStride, ahead);
      };
      with_rows<2>(unit.blocks.count, add);
    }
  }
}

// More rows than few: panels of two row tiles, each against a group of units whose weights stay in the level 2 cache.
template <class F, class Output>
void over_many_rows(const Matrix& matrix, const Activations& act, int row0, int rows, Units unit, int first, int end,
                    const Output& output) {
  const int panels = (rows + 2 * kLanes - 1) / (2 * kLanes), tile_rows = (rows + 2 * panels - 1) / (2 * panels);
  const Tiles configured = row_tiles(tile_rows);
  const size_t unit_bytes = 2 * matrix.strips * kBf16Record, stride = act.stride;
  const int most = static_cast<int>(std::clamp<size_t>(kScratchBytes / unit_bytes, 1, kMostUnits));
  uint8_t* scratch = F::kFormat == Format::bf16 ? nullptr : weight_scratch();
  alignas(64) float sums[kMostUnits][2 * kLanes * kPanelStride];
  Unit units[kMostUnits];
  for (int index = 0;; index += most) {
    int count = 0;
    for (; count < most; count++) {
      const Blocks blocks = unit(index + count, first, end);
      if (blocks.count == 0) break;
      units[count] = as_bf16<F>(matrix, blocks, scratch == nullptr ? nullptr : scratch + count * unit_bytes);
    }
    tiles_will_read(scratch);
    for (int p = 0; p < panels; p++) {
      // The last panel begins so much earlier that it ends with the rows.
      const int low = p * 2 * tile_rows, start = tile_start(p, 2 * tile_rows, rows);
      const PanelRows now{act.b + (row0 + start) * stride, stride, tile_rows, row0 + low, start + 2 * tile_rows - low};
      panel_sums(units, count, matrix.strips, now, output, sums);
      for (int u = 0; u < count; u++) {
        output.write(sums[u] + (low - start) * kPanelStride, now.first, now.count, units[u].blocks);
      }
    }
    if (count < most) return;
  }
}

template <class F, class Output>
void over_rows(const Matrix& matrix, const Activations& act, int row0, int rows, Units unit, int first, int end,
               const Output& output) {
  if (rows > kFewRows && (F::kFormat == Format::bf16 || fits_scratch(matrix))) {
    return over_many_rows<F>(matrix, act, row0, rows, unit, first, end, output);
  }
  for (int row = 0; row < rows; row += kFewRows) {
    over_few_rows<F>(matrix, act, row0 + row, rows - row < kFewRows ? rows - row : kFewRows, unit, first, end, output);
  }
}

// `output` as for over_panels; false for a format that has no tiles.
template <class Output>
bool over_tiles(const Matrix& matrix, const Activations& act, int row0, int rows, Units unit, int first, int end,
                const Output& output) {
  switch (matrix.format) {
    case Format::bf16: return over_rows<BF16>(matrix, act, row0, rows, unit, first, end, output), true;
    case Format::q8: return over_rows<Q8>(matrix, act, row0, rows, unit, first, end, output), true;
    case Format::q4_0: return over_rows<Q4_0>(matrix, act, row0, rows, unit, first, end, output), true;
    case Format::q4_1: return over_rows<Q4_1>(matrix, act, row0, rows, unit, first, end, output), true;
    case Format::q4_k: return over_rows<Q4_K>(matrix, act, row0, rows, unit, first, end, output), true;
    case Format::q6_k: return over_rows<Q6_K>(matrix, act, row0, rows, unit, first, end, output), true;
    case Format::f32: break;
  }
  return false;
}

}  // namespace samovar::SAMOVAR_ISA_NAMESPACE
