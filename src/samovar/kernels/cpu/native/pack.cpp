#include "pack.h"

#include <cmath>
#include <cstring>

#include "half.h"

namespace samovar {
namespace {

struct Kind {
  int group;
  int bytes;
};

Kind kind_of(Source source) {
  switch (source) {
    case Source::f32: return {1, 4};
    case Source::f16: return {1, 2};
    case Source::bf16: return {1, 2};
    case Source::q4_0: return {32, 18};
    case Source::q4_1: return {32, 20};
    case Source::q8_0: return {32, 34};
    case Source::q4_k: return {256, 144};
    case Source::q6_k: return {256, 210};
  }
  return {1, 0};
}

uint16_t load16(const uint8_t* at) {
  uint16_t x;
  std::memcpy(&x, at, sizeof x);
  return x;
}
uint32_t load32(const uint8_t* at) {
  uint32_t x;
  std::memcpy(&x, at, sizeof x);
  return x;
}
template <class T>
void put(uint8_t* at, T x) {
  std::memcpy(at, &x, sizeof x);
}

// One output column of a packed matrix.
class Column {
 public:
  Column(Format format, uint8_t* data, int k, int column)
      : bytes_(strip_bytes(format)), lane_(column % kLanes) {
    const size_t strips = (static_cast<size_t>(k) + kStripK - 1) / kStripK;
    first_ = data + static_cast<size_t>(column / kLanes) * strips * bytes_;
  }

  uint8_t* strip(int index) const { return first_ + static_cast<size_t>(index) * bytes_; }
  uint8_t* group_strip(int group) const { return strip(group / 2); }
  // The 4 bytes of quad `quad` of 16 of a strip with a byte per weight.
  uint8_t* quad(uint8_t* strip, int quad) const { return strip + (quad * kLanes + lane_) * 4; }
  template <class T>
  void put_scale(uint8_t* table, int row, T value) const {
    put(table + (row * kLanes + lane_) * sizeof(T), value);
  }

  // 32 nibbles given as in GGUF's q4_0: byte i holds input i low and input i + 16 high.
  void put_halves(int group, const uint8_t* nibbles) const {
    uint8_t* at = group_strip(group) + (group % 2) * 256 + lane_ * 4;
    for (int half = 0; half < 2; half++) {
      const uint32_t a = load32(nibbles + 8 * half), b = load32(nibbles + 8 * half + 4);
      put(at + half * 64, (a & 0x0f0f0f0fu) | (b & 0x0f0f0f0fu) << 4);
      put(at + (half + 2) * 64, (a & 0xf0f0f0f0u) >> 4 | (b & 0xf0f0f0f0u));
    }
  }
  // 32 nibbles given as in GGUF's q4_k: the low (shift 0) or high (shift 4) nibbles of 32 bytes.
  void put_nibbles(int group, const uint8_t* bytes, int shift) const {
    uint8_t* at = group_strip(group) + (group % 2) * 256 + lane_ * 4;
    for (int v = 0; v < 4; v++) {
      const uint32_t a = load32(bytes + 8 * v) >> shift, b = load32(bytes + 8 * v + 4) >> shift;
      put(at + v * 64, (a & 0x0f0f0f0fu) | (b & 0x0f0f0f0fu) << 4);
    }
  }

 private:
  size_t bytes_;
  int lane_;
  uint8_t* first_;
};

void pack_q4_0(const Column& column, const uint8_t* row, int k) {
  for (int g = 0; g < k / 32; g++, row += 18) {
    column.put_scale(column.group_strip(g) + 512, g % 2, load16(row));
    column.put_halves(g, row + 2);
  }
}

void pack_q4_1(const Column& column, const uint8_t* row, int k) {
  for (int g = 0; g < k / 32; g++, row += 20) {
    column.put_scale(column.group_strip(g) + 512, g % 2, load16(row));
    column.put_scale(column.group_strip(g) + 576, g % 2, load16(row + 2));
    column.put_halves(g, row + 4);
  }
}

void pack_q8_0(const Column& column, const uint8_t* row, int k) {
  for (int g = 0; g < k / 32; g++, row += 34) {
    uint8_t* strip = column.group_strip(g);
    column.put_scale(strip + 1024, g % 2, load16(row));
    for (int quad = 0; quad < 8; quad++) {
      put(column.quad(strip, (g % 2) * 8 + quad), load32(row + 2 + 4 * quad) ^ 0x80808080u);
    }
  }
}

// The 6-bit scale and minimum of group j of 8 in a q4_k block's 12 bytes.
void scale_and_minimum(const uint8_t* packed, int j, int* scale, int* minimum) {
  if (j < 4) {
    *scale = packed[j] & 63;
    *minimum = packed[j + 4] & 63;
  } else {
    *scale = (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4;
    *minimum = packed[j + 4] >> 4 | (packed[j] >> 6) << 4;
  }
}

void pack_q4_k(const Column& column, const uint8_t* row, int k) {
  for (int block = 0; block < k / 256; block++, row += 144) {
    const float d = half_to_float(load16(row)), dmin = half_to_float(load16(row + 2));
    for (int j = 0; j < 8; j++) {
      const int g = block * 8 + j;
      int scale, minimum;
      scale_and_minimum(row + 4, j, &scale, &minimum);
      uint8_t* strip = column.group_strip(g);
      column.put_scale(strip + 512, g % 2, d * static_cast<float>(scale));
      column.put_scale(strip + 640, g % 2, -(dmin * static_cast<float>(minimum)));
      column.put_nibbles(g, row + 16 + j / 2 * 32, j % 2 * 4);
    }
  }
}

void pack_q6_k(const Column& column, const uint8_t* row, int k) {
  for (int block = 0; block < k / 256; block++, row += 210) {
    const uint8_t *low = row, *high = row + 128;
    const int8_t* scales = reinterpret_cast<const int8_t*>(row + 192);
    const float d = half_to_float(load16(row + 208));
    for (int quad = 0; quad < 64; quad++) {  // inputs 4 quad ... 4 quad + 3
      // A block is two halves of 128 inputs, a half four runs of 32: runs 0 and 1 take the low nibbles of 64 bytes, 2
      // and 3 the high ones; run r takes bits 2 r of 32 more bytes.
      const int half = quad / 32, run = quad / 8 % 4, at = quad % 8 * 4;
      const uint32_t nibbles = load32(low + half * 64 + run % 2 * 32 + at) >> (run / 2 * 4) & 0x0f0f0f0fu;
      const uint32_t tops = load32(high + half * 32 + at) >> (run * 2) & 0x03030303u;
      put(column.quad(column.strip(block * 4 + quad / 16), quad % 16), nibbles | tops << 4);
    }
    for (int s = 0; s < 16; s++) {
      column.put_scale(column.strip(block * 4 + s / 4) + 1024, s % 4, d * static_cast<float>(scales[s]));
    }
  }
}

float value(Source source, const uint8_t* row, int i) {
  if (source == Source::f32) return bits_float(load32(row + 4 * static_cast<size_t>(i)));
  const uint16_t x = load16(row + 2 * static_cast<size_t>(i));
  return source == Source::f16 ? half_to_float(x) : bf16_to_float(x);
}

// One strip of a float source as f32, with zeros behind the row's end.
template <Source kSource>
void read_strip(const uint8_t* row, int first, int k, float* out) {
  const int count = k - first < kStripK ? k - first : kStripK;
  for (int i = 0; i < count; i++) out[i] = value(kSource, row, first + i);
  for (int i = count; i < kStripK; i++) out[i] = 0.0f;
}

void put_f32(const Column& column, uint8_t* strip, const float* x) {
  for (int i = 0; i < kStripK; i++) column.put_scale(strip, i, x[i]);
}

void put_bf16(const Column& column, uint8_t* strip, const float* x) {
  for (int pair = 0; pair < kStripK / 2; pair++) {
    const uint32_t low = float_to_bf16(x[2 * pair]), high = float_to_bf16(x[2 * pair + 1]);
    column.put_scale(strip, pair, low | high << 16);
  }
}

void put_q8(const Column& column, uint8_t* strip, const float* x) {
  for (int g = 0; g < 2; g++, x += kGroupK) {
    float top = 0.0f;
    for (int i = 0; i < kGroupK; i++) top = std::fabs(x[i]) > top ? std::fabs(x[i]) : top;
    const uint16_t half = float_to_half(top / 127.0f);
    const float d = half_to_float(half);
    const float inverse = d > 0.0f ? 1.0f / d : 0.0f;
    column.put_scale(strip + 1024, g, half);
    for (int quad = 0; quad < 8; quad++) {
      uint32_t bytes = 0;
      for (int j = 0; j < 4; j++) {
        // A scale so small that its f16 is coarse can leave a value above 127.
        int q = static_cast<int>(std::lrintf(x[4 * quad + j] * inverse));
        q = q > 127 ? 127 : q < -127 ? -127 : q;
        bytes |= static_cast<uint32_t>(q + 128) << (8 * j);
      }
      put(column.quad(strip, g * 8 + quad), bytes);
    }
  }
}

template <Source kSource>
void pack_floats(Format format, const Column& column, const uint8_t* row, int k) {
  float x[kStripK];
  for (int s = 0; s * kStripK < k; s++) {
    read_strip<kSource>(row, s * kStripK, k, x);
    if (format == Format::f32) put_f32(column, column.strip(s), x);
    if (format == Format::bf16) put_bf16(column, column.strip(s), x);
    if (format == Format::q8) put_q8(column, column.strip(s), x);
  }
}

}  // namespace

int source_group(Source source) { return kind_of(source).group; }

size_t source_row_bytes(Source source, int k) {
  const Kind kind = kind_of(source);
  return static_cast<size_t>(k) / kind.group * kind.bytes;
}

bool can_pack(Format format, Source source) {
  switch (source) {
    case Source::q4_0: return format == Format::q4_0;
    case Source::q4_1: return format == Format::q4_1;
    case Source::q8_0: return format == Format::q8;
    case Source::q4_k: return format == Format::q4_k;
    case Source::q6_k: return format == Format::q6_k;
    default: return format == Format::f32 || format == Format::bf16 || format == Format::q8;
  }
}

size_t packed_bytes(Format format, int n, int k) {
  const Matrix matrix = packed_matrix(format, n, k, nullptr);
  return static_cast<size_t>(matrix.blocks) * matrix.strips * strip_bytes(format);
}

Matrix packed_matrix(Format format, int n, int k, const uint8_t* data) {
  return {format, n, k, (n + kLanes - 1) / kLanes, (k + kStripK - 1) / kStripK, data};
}

void pack(Format format, uint8_t* data, int k, int first, int count, Source source, const void* weights,
          const int32_t* rows) {
  const size_t row_bytes = source_row_bytes(source, k);
  for (int i = 0; i < count; i++) {
    const Column column(format, data, k, first + i);
    const uint8_t* row = static_cast<const uint8_t*>(weights) + (rows == nullptr ? i : rows[i]) * row_bytes;
    switch (source) {
      case Source::f32: pack_floats<Source::f32>(format, column, row, k); break;
      case Source::f16: pack_floats<Source::f16>(format, column, row, k); break;
      case Source::bf16: pack_floats<Source::bf16>(format, column, row, k); break;
      case Source::q4_0: pack_q4_0(column, row, k); break;
      case Source::q4_1: pack_q4_1(column, row, k); break;
      case Source::q8_0: pack_q8_0(column, row, k); break;
      case Source::q4_k: pack_q4_k(column, row, k); break;
      case Source::q6_k: pack_q6_k(column, row, k); break;
    }
  }
}

}  // namespace samovar
