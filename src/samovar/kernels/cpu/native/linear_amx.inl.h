// Linear with AMX tiles: bf16 for any number of rows (its rounding is the tiles' own, so one row must use them too),
// the integer formats from the number of rows on where they are faster (exact either way).
#pragma once

#include "amx.inl.h"
#include "linear_rows.inl.h"

namespace samovar::SAMOVAR_ISA_NAMESPACE {

// The tiles of one call: 0-3 sums [rows][16], 4 and 5 inputs [rows][input_bytes], 6 and 7 weights
// [input_bytes / 4][16 outputs][4 bytes]. Unset for zero rows. Row tiles all have the same height: the last one of a
// panel begins so much earlier that it ends with the rows, and computes some twice; in the panel, tile follows tile.
class RowTiles {
 public:
  RowTiles(int rows, int input_bytes) : set_(rows > 0) {
    if (!set_) return;
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 0, 0, 64, 64};
      uint8_t rows[16] = {};
    } config;
    for (int tile = 0; tile < 6; tile++) config.rows[tile] = static_cast<uint8_t>(rows);
    config.row_bytes[4] = config.row_bytes[5] = static_cast<uint16_t>(input_bytes);
    config.rows[6] = config.rows[7] = static_cast<uint8_t>(input_bytes / 4);
    tiles_will_read(&config);
    _tile_loadconfig(&config);
  }
  ~RowTiles() {
    if (set_) _tile_release();
  }
  RowTiles(const RowTiles&) = delete;
  RowTiles& operator=(const RowTiles&) = delete;

 private:
  bool set_;
};

inline int tile_start(int tile, int tile_rows, int rows) {
  const int start = tile * tile_rows;
  return start < rows - tile_rows ? start : rows - tile_rows;
}

// Inputs of a pair of blocks (32 bytes per input) that stay in the level 1 cache while the rows of a panel pass by.
constexpr int kBf16Strips = 10;

// A run of strips of some rows and blocks; x and panel per row tile.
struct Bf16Run {
  const uint8_t* weights;
  size_t step_bytes;  // from one block to the other
  int strips;
  bool begin;  // the sums, rather than add to those in the panel
  const uint16_t* x[2];
  size_t x_bytes;
  float* panel[2];
};

// kTiles (1, 2) row tiles against kBlocks (1, 2). Tiles are written as literals: the intrinsics paste them into the
// assembly. Inputs are loaded with the hint to leave the weights in the cache.
template <int kTiles, int kBlocks, bool kPrefetch>
inline void bf16_tile_sums(const Bf16Run& run) {
  constexpr size_t kHalfRecord = strip_bytes(Format::bf16) / 2;
  constexpr int kBytes = kPanelStride * sizeof(float);
  if (run.begin) {
    _tile_zero(0);
    if (kBlocks == 2) _tile_zero(1);
    if (kTiles == 2) _tile_zero(2);
    if (kTiles == 2 && kBlocks == 2) _tile_zero(3);
  } else {
    _tile_loadd(0, run.panel[0], kBytes);
    if (kBlocks == 2) _tile_loadd(1, run.panel[0] + kLanes, kBytes);
    if (kTiles == 2) _tile_loadd(2, run.panel[1], kBytes);
    if (kTiles == 2 && kBlocks == 2) _tile_loadd(3, run.panel[1] + kLanes, kBytes);
  }
  const uint8_t* weights = run.weights;
  for (int step = 0; step < 2 * run.strips; step++, weights += kHalfRecord) {
    if (kPrefetch) {
      for (int b = 0; b < kBlocks; b++) prefetch(weights + b * run.step_bytes + kPrefetchBytes / kBlocks, kHalfRecord);
    }
    _tile_stream_loadd(4, run.x[0] + step * 32, run.x_bytes);
    _tile_loadd(6, weights, 64);
    _tile_dpbf16ps(0, 4, 6);
    if (kBlocks == 2) {
      _tile_loadd(7, weights + run.step_bytes, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    if (kTiles == 2) {
      _tile_stream_loadd(5, run.x[1] + step * 32, run.x_bytes);
      _tile_dpbf16ps(2, 5, 6);
      if (kBlocks == 2) _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, run.panel[0], kBytes);
  if (kBlocks == 2) _tile_stored(1, run.panel[0] + kLanes, kBytes);
  if (kTiles == 2) _tile_stored(2, run.panel[1], kBytes);
  if (kTiles == 2 && kBlocks == 2) _tile_stored(3, run.panel[1] + kLanes, kBytes);
}

// The row tiles of a panel, two at a time.
template <int kBlocks>
inline void bf16_tile_pairs(Bf16Run run, bool fresh, const uint16_t* x, size_t stride, int rows, int tile_rows,
                            float* panel) {
  const int tiles = (rows + tile_rows - 1) / tile_rows;
  for (int t = 0; t < tiles; t += 2) {
    for (int i = 0; i < 2; i++) {
      run.x[i] = x + tile_start(t + i, tile_rows, rows) * stride;
      run.panel[i] = panel + (t + i) * tile_rows * kPanelStride;
    }
    if (t == 0 && fresh) {
      bf16_tile_sums<2, kBlocks, true>(run);
    } else if (t + 1 == tiles) {
      bf16_tile_sums<1, kBlocks, false>(run);
    } else {
      bf16_tile_sums<2, kBlocks, false>(run);
    }
  }
}

inline void bf16_tiles(const Matrix& matrix, const Activations& act, int row0, int rows, Blocks blocks, int tile_rows,
                       float* panel) {
  constexpr size_t kRecord = strip_bytes(Format::bf16);
  const size_t block_bytes = matrix.strips * kRecord, stride = act.stride;
  const uint16_t* x = act.b + row0 * stride;
  const uint8_t* weights = matrix.data + blocks.first * block_bytes;
  Bf16Run run{weights, blocks.step * block_bytes, matrix.strips, true, {x, x}, stride * sizeof *x, {panel, panel}};
  if (rows == tile_rows) {
    // Few rows: what takes the time is reading the weights, best in one stretch.
    for (int b = 0; b < blocks.count; b++) {
      bf16_tile_sums<1, 1, true>(run);
      run.weights += run.step_bytes;
      run.panel[0] += kLanes;
    }
    return;
  }
  const int runs = (matrix.strips + kBf16Strips - 1) / kBf16Strips;
  for (int i = 0; i < runs; i++) {
    const int low = matrix.strips * i / runs, high = matrix.strips * (i + 1) / runs;
    run.weights = weights + low * kRecord;
    run.strips = high - low;
    run.begin = i == 0;
    if (blocks.count == 2) {
      bf16_tile_pairs<2>(run, blocks.fresh, x + low * kStripK, stride, rows, tile_rows, panel);
    } else {
      bf16_tile_pairs<1>(run, blocks.fresh, x + low * kStripK, stride, rows, tile_rows, panel);
    }
  }
}

// Rows per panel: as few as make two row tiles, so that writing out goes on beside the next tiles; more where every run
// of strips has to pass the whole panel.
inline int bf16_panel_rows(int strips) { return strips <= kBf16Strips ? 2 * kLanes : 8 * kLanes; }

// Part of a block, unpacked for all rows of a panel: weights signed, without their offset.
struct UnpackedBlock {
  static constexpr int kGroups = 32;
  alignas(64) int8_t weights[kGroups][kGroupK * kLanes];
  alignas(64) float scales[kGroups * 2][kLanes];
  alignas(64) float minimums[kGroups][kLanes];
};

template <class F>
inline void unpack(const uint8_t* record, int strips, UnpackedBlock* out) {
  constexpr size_t kRecord = strip_bytes(F::kFormat);
  const __m512i offset = _mm512_set1_epi8(static_cast<char>(F::kOffset));
  for (int strip = 0; strip < strips; strip++, record += kRecord) {
    prefetch(record + kPrefetchBytes, kRecord);
    for (int group = 0; group < 2; group++) {
      const int g = 2 * strip + group;
      Ints quads[8];
      F::quads(record, group, 0, quads);
      for (int i = 0; i < 8; i++) {
        store(out->weights[g] + i * 64, _mm512_sub_epi8((__m512i)quads[i], offset));
      }
      for (int i = 0; i < F::kScales; i++) {
        store(out->scales[g * F::kScales + i], F::scale(record, group * F::kScales + i, 0));
      }
      if (F::kMinimum) store(out->minimums[g], F::minimum(record, group, 0));
    }
  }
  tiles_will_read(out);
}

// The sums of one run of inputs (a group, or half of one in q6_k) of a row tile, as whole numbers. The tiles work on
// one run while the sums of the one before are scaled; more runs ahead were not faster.
constexpr int kRunsAhead = 1;

#define SAMOVAR_WHOLE_SUMS(sums, inputs, weights_tile) \
  _tile_zero(sums);                                    \
  _tile_loadd(inputs, x, x_bytes);                     \
  _tile_loadd(weights_tile, weights, 64);              \
  _tile_dpbssd(sums, inputs, weights_tile);            \
  _tile_stored(sums, out, 64)

inline void whole_sums(int run, const int8_t* x, size_t x_bytes, const int8_t* weights, int32_t* out) {
  if (run % (kRunsAhead + 1) == 0) {
    SAMOVAR_WHOLE_SUMS(0, 4, 6);
  } else {
    SAMOVAR_WHOLE_SUMS(1, 5, 7);
  }
}
#undef SAMOVAR_WHOLE_SUMS

// What the sums of one row tile are scaled with, group by group, the rows side by side: a broadcast then needs neither
// a pointer per row nor more than one line of the cache per group.
struct TileScales {
  alignas(64) float scale[UnpackedBlock::kGroups][kLanes];
  alignas(64) float scaled_sum[UnpackedBlock::kGroups][kLanes];
};

inline void transpose(__m512 (&rows)[16]) {
  __m512 t[16];
  for (int i = 0; i < 16; i += 4) {
    const __m512 a = _mm512_unpacklo_ps(rows[i], rows[i + 1]), b = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
    const __m512 c = _mm512_unpacklo_ps(rows[i + 2], rows[i + 3]), d = _mm512_unpackhi_ps(rows[i + 2], rows[i + 3]);
    t[i] = _mm512_shuffle_ps(a, c, 0x44);
    t[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
    t[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
    t[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
  }
  // Now t[4 i + j] holds, in quarter q, column 4 q + j of rows 4 i ... 4 i + 3.
  for (int j = 0; j < 4; j++) {
    const __m512 a = _mm512_shuffle_f32x4(t[j], t[4 + j], 0x88), b = _mm512_shuffle_f32x4(t[j], t[4 + j], 0xdd);
    const __m512 c = _mm512_shuffle_f32x4(t[8 + j], t[12 + j], 0x88);
    const __m512 d = _mm512_shuffle_f32x4(t[8 + j], t[12 + j], 0xdd);
    rows[j] = _mm512_shuffle_f32x4(a, c, 0x88);
    rows[4 + j] = _mm512_shuffle_f32x4(b, d, 0x88);
    rows[8 + j] = _mm512_shuffle_f32x4(a, c, 0xdd);
    rows[12 + j] = _mm512_shuffle_f32x4(b, d, 0xdd);
  }
}

// Groups [0, groups) of up to 16 rows, row stride in floats; rows that do not exist repeat the last.
inline void side_by_side(const float* from, size_t stride, int rows, int groups,
                         float (&to)[UnpackedBlock::kGroups][kLanes]) {
  for (int g = 0; g < groups; g += 16) {
    const __mmask16 mask = static_cast<__mmask16>(groups - g >= 16 ? 0xffff : (1 << (groups - g)) - 1);
    __m512 square[16];
    for (int r = 0; r < 16; r++) square[r] = _mm512_maskz_loadu_ps(mask, from + (r < rows ? r : rows - 1) * stride + g);
    transpose(square);
    for (int i = 0; i < 16; i++) store(to[g + i], square[i]);
  }
}

// Scales the whole sums of one run of inputs and adds them to those before.
template <class F, int kRows>
__attribute__((always_inline)) inline void add_run(const UnpackedBlock& block, int run, const int32_t* whole,
                                                   const TileScales& scales, Floats (&sums)[kRows]) {
  const int group = run / F::kScales;
  const float *scale = scales.scale[group], *scaled_sum = scales.scaled_sum[group];
  const Floats d = load<Floats>(block.scales[run]), minimum = load<Floats>(block.minimums[group]);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; r++) {
    sums[r] = fma(to_floats(load<Ints>(whole + r * kLanes)), d * all(scale[r]), sums[r]);
    // In q6_k a minimum would follow the second half; it has none.
    if (F::kMinimum) sums[r] = fma(minimum, all(scaled_sum[r]), sums[r]);
  }
}

// One row tile against the unpacked groups; adds to the sums in panel, or begins them. A tile may be lower than kRows:
// what is computed for the rows it lacks is not kept.
template <class F, int kRows>
inline void int8_tile_sums(const UnpackedBlock& block, int groups, const int8_t* x, size_t x_bytes,
                           const TileScales& scales, int tile_rows, bool begin, float* panel) {
  constexpr int kRun = kGroupK / F::kScales;
  Floats sums[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; r++) sums[r] = begin || r >= tile_rows ? Floats{} : load<Floats>(panel + r * kPanelStride);
  alignas(64) int32_t whole[kRunsAhead + 1][kRows * kLanes];
  const int runs = groups * F::kScales;
  for (int run = -kRunsAhead; run < runs; run++) {
    const int ahead = run + kRunsAhead;
    if (ahead < runs) {
      whole_sums(ahead, x + ahead * kRun, x_bytes, block.weights[0] + ahead * kRun * kLanes,
                 whole[ahead % (kRunsAhead + 1)]);
    }
    if (run >= 0) add_run<F>(block, run, whole[run % (kRunsAhead + 1)], scales, sums);
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; r++) {
    if (r < tile_rows) store(panel + r * kPanelStride, sums[r]);
  }
}

template <class F, int kRows>
void int8_tile_panel(const Matrix& matrix, const Activations& act, int row0, int rows, Blocks blocks, int tile_rows,
                     float* panel) {
  constexpr int kStrips = UnpackedBlock::kGroups / 2;
  const size_t stride = act.stride, act_groups = stride / kGroupK;
  UnpackedBlock unpacked[2];
  TileScales scales;
  for (int strip = 0; strip < matrix.strips; strip += kStrips) {
    const int strips = matrix.strips - strip < kStrips ? matrix.strips - strip : kStrips;
    for (int b = 0; b < blocks.count; b++) {
      unpack<F>(matrix.strip(blocks.first + b * blocks.step, strip), strips, &unpacked[b]);
    }
    for (int t = 0; t * tile_rows < rows; t++) {
      const size_t row = row0 + tile_start(t, tile_rows, rows), at = row * act_groups + 2 * strip;
      side_by_side(act.scale + at, act_groups, tile_rows, 2 * strips, scales.scale);
      if (F::kMinimum) side_by_side(act.scaled_sum + at, act_groups, tile_rows, 2 * strips, scales.scaled_sum);
      for (int b = 0; b < blocks.count; b++) {
        int8_tile_sums<F, kRows>(unpacked[b], 2 * strips, act.q + row * stride + strip * kStripK, stride, scales,
                                 tile_rows, strip == 0, panel + t * tile_rows * kPanelStride + b * kLanes);
      }
    }
  }
}

template <class F>
void int8_tiles(const Matrix& matrix, const Activations& act, int row0, int rows, Blocks blocks, int tile_rows,
                float* panel) {
  if (tile_rows <= 8) return int8_tile_panel<F, 8>(matrix, act, row0, rows, blocks, tile_rows, panel);
  if (tile_rows <= 12) return int8_tile_panel<F, 12>(matrix, act, row0, rows, blocks, tile_rows, panel);
  int8_tile_panel<F, 16>(matrix, act, row0, rows, blocks, tile_rows, panel);
}

// The fewest rows for which tiles are faster than vectors (measured on Sapphire Rapids).
constexpr int kRowsWorthTiles = 28;

}  // namespace samovar::SAMOVAR_ISA_NAMESPACE
