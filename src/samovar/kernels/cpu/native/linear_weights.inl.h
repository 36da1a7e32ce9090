// What the integer formats are made of: how a group of 32 inputs is read from its record, for the dot products and for
// dequantising.
#pragma once

#include "linear_lanes.inl.h"

namespace samovar::SAMOVAR_ISA_NAMESPACE {

// Group `group` (0, 1) of a record, outputs [piece * kWidth, ...): the 8 quads of inputs.
inline void load_nibbles(const uint8_t* record, int group, int piece, Ints* quads) {
  for (int v = 0; v < 4; v++) {
    const Words both = load<Words>(record + group * 256 + v * 64 + piece * kWidth * 4);
    quads[2 * v] = (Ints)(both & 0x0f0f0f0fu);
    quads[2 * v + 1] = (Ints)((both >> 4) & 0x0f0f0f0fu);
  }
}
inline void load_bytes(const uint8_t* record, int group, int piece, Ints* quads) {
  for (int quad = 0; quad < 8; quad++) quads[quad] = load<Ints>(record + (group * 8 + quad) * 64 + piece * kWidth * 4);
}

// Row `row` of a record's table of scales, for the piece's outputs.
inline Floats load_halves(const uint8_t* table, int row, int piece) {
  return halves_to_floats(table + (row * kLanes + piece * kWidth) * 2);
}
inline Floats load_floats(const uint8_t* table, int row, int piece) {
  return load<Floats>(table + (row * kLanes + piece * kWidth) * 4);
}

// Each format states: kTop, the bound of its weights as `dot` takes it; kOffset, what is to be subtracted from every
// weight as loaded; kScales, the scales per group; kMinimum, whether a group has an m; and the loads.
struct Q8 {
  static constexpr Format kFormat = Format::q8;
  static constexpr int kTop = 255, kOffset = kSignedWeights ? 0 : 128, kScales = 1;
  static constexpr bool kMinimum = false;
  static void quads(const uint8_t* record, int group, int piece, Ints* out) {
    load_bytes(record, group, piece, out);
    if (kSignedWeights) {
      for (int i = 0; i < 8; i++) out[i] ^= static_cast<int32_t>(0x80808080u);
    }
  }
  static Floats scale(const uint8_t* record, int index, int piece) { return load_halves(record + 1024, index, piece); }
  static Floats minimum(const uint8_t*, int, int) { return Floats{}; }
};

struct Q4_0 {
  static constexpr Format kFormat = Format::q4_0;
  static constexpr int kTop = 15, kOffset = 8, kScales = 1;
  static constexpr bool kMinimum = false;
  static void quads(const uint8_t* record, int group, int piece, Ints* out) { load_nibbles(record, group, piece, out); }
  static Floats scale(const uint8_t* record, int index, int piece) { return load_halves(record + 512, index, piece); }
  static Floats minimum(const uint8_t*, int, int) { return Floats{}; }
};

struct Q4_1 {
  static constexpr Format kFormat = Format::q4_1;
  static constexpr int kTop = 15, kOffset = 0, kScales = 1;
  static constexpr bool kMinimum = true;
  static void quads(const uint8_t* record, int group, int piece, Ints* out) { load_nibbles(record, group, piece, out); }
  static Floats scale(const uint8_t* record, int index, int piece) { return load_halves(record + 512, index, piece); }
  static Floats minimum(const uint8_t* record, int group, int piece) { return load_halves(record + 576, group, piece); }
};

struct Q4_K {
  static constexpr Format kFormat = Format::q4_k;
  static constexpr int kTop = 15, kOffset = 0, kScales = 1;
  static constexpr bool kMinimum = true;
  static void quads(const uint8_t* record, int group, int piece, Ints* out) { load_nibbles(record, group, piece, out); }
  static Floats scale(const uint8_t* record, int index, int piece) { return load_floats(record + 512, index, piece); }
  static Floats minimum(const uint8_t* record, int group, int piece) { return load_floats(record + 640, group, piece); }
};

struct Q6_K {
  static constexpr Format kFormat = Format::q6_k;
  static constexpr int kTop = 63, kOffset = 32, kScales = 2;
  static constexpr bool kMinimum = false;
  static void quads(const uint8_t* record, int group, int piece, Ints* out) { load_bytes(record, group, piece, out); }
  static Floats scale(const uint8_t* record, int index, int piece) { return load_floats(record + 1024, index, piece); }
  static Floats minimum(const uint8_t*, int, int) { return Floats{}; }
};

}  // namespace samovar::SAMOVAR_ISA_NAMESPACE
