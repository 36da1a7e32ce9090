// Packing, rounding, linear and linear_swiglu on every instruction set of this machine: against double precision over
// weights dequantised here from their source, and bit against bit between numbers of rows and ranges of blocks.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "half.h"
#include "kernels.h"
#include "pack.h"

using namespace samovar;

namespace {

std::mt19937 random_bits(20);

int whole(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_bits); }
float normal() { return std::normal_distribution<float>()(random_bits); }

// One weight: its value, the size of what it is the sum of (d * u and m may cancel), and the value in one rounding.
struct Weight {
  float value;
  float size;
  float once;
};

struct Case {
  const char* name;
  Format format;
  Source source;
};
const Case kCases[] = {
    {"f32", Format::f32, Source::f32},        {"bf16", Format::bf16, Source::f32},
    {"bf16 of bf16", Format::bf16, Source::bf16}, {"q8 of f32", Format::q8, Source::f32},
    {"q8 of f16", Format::q8, Source::f16},   {"q8_0", Format::q8, Source::q8_0},
    {"q4_0", Format::q4_0, Source::q4_0},     {"q4_1", Format::q4_1, Source::q4_1},
    {"q4_k", Format::q4_k, Source::q4_k},     {"q6_k", Format::q6_k, Source::q6_k},
};

uint16_t load16(const uint8_t* at) {
  uint16_t x;
  std::memcpy(&x, at, 2);
  return x;
}
void put16(uint8_t* at, uint16_t x) { std::memcpy(at, &x, 2); }

// Random source rows; scales of quantised blocks are replaced by sensible ones.
std::vector<uint8_t> random_source(Source source, int rows, int k) {
  std::vector<uint8_t> bytes(source_row_bytes(source, k) * rows);
  if (source == Source::f32 || source == Source::f16 || source == Source::bf16) {
    for (size_t i = 0; i < static_cast<size_t>(rows) * k; i++) {
      const float x = normal() * (whole(0, 99) == 0 ? 20.0f : 1.0f);
      if (source == Source::f32) std::memcpy(&bytes[4 * i], &x, 4);
      if (source == Source::f16) put16(&bytes[2 * i], float_to_half(x));
      if (source == Source::bf16) put16(&bytes[2 * i], float_to_bf16(x));
    }
    return bytes;
  }
  for (auto& byte : bytes) byte = static_cast<uint8_t>(random_bits());
  const size_t block = source_row_bytes(source, source_group(source));
  for (size_t at = 0; at < bytes.size(); at += block) {
    const uint16_t d = float_to_half(normal() * 0.1f), m = float_to_half(normal() * 0.1f);
    put16(&bytes[at + (source == Source::q6_k ? 208 : 0)], d);
    if (source == Source::q4_1 || source == Source::q4_k) put16(&bytes[at + 2], m);
  }
  return bytes;
}

// GGUF's formats as their description has them, input by input.
Weight quantised(Source source, const uint8_t* row, int i) {
  if (source == Source::q4_0 || source == Source::q4_1) {
    const int head = source == Source::q4_0 ? 2 : 4, j = i % 32;
    const uint8_t* block = row + i / 32 * (16 + head);
    const int u = j < 16 ? block[head + j] & 15 : block[head + j - 16] >> 4;
    const float d = half_to_float(load16(block));
    if (source == Source::q4_0) return {d * (u - 8), std::fabs(d * (u - 8)), d * (u - 8)};
    const float m = half_to_float(load16(block + 2));
    return {d * u + m, std::fabs(d * u) + std::fabs(m), std::fma(d, static_cast<float>(u), m)};
  }
  if (source == Source::q8_0) {
    const uint8_t* block = row + i / 32 * 34;
    const float value = half_to_float(load16(block)) * static_cast<int8_t>(block[2 + i % 32]);
    return {value, std::fabs(value), value};
  }
  const int j = i % 256;
  if (source == Source::q4_k) {
    const uint8_t* block = row + i / 256 * 144;
    const int group = j / 32;
    int scale, minimum;
    if (group < 4) {
      scale = block[4 + group] & 63;
      minimum = block[8 + group] & 63;
    } else {
      scale = (block[8 + group] & 15) + 16 * (block[group] >> 6);
      minimum = (block[8 + group] >> 4) + 16 * (block[4 + group] >> 6);
    }
    const int byte = block[16 + j / 64 * 32 + j % 32], u = j % 64 < 32 ? byte & 15 : byte >> 4;
    const float d = half_to_float(load16(block)) * scale, m = half_to_float(load16(block + 2)) * minimum;
    return {d * u - m, std::fabs(d * u) + std::fabs(m), std::fma(d, static_cast<float>(u), -m)};
  }
  const uint8_t* block = row + i / 256 * 210;
  const int half = j / 128, run = j % 128 / 32, l = j % 32;
  const int low = block[half * 64 + (run % 2) * 32 + l], high = block[128 + half * 32 + l];
  const int u = (run < 2 ? low & 15 : low >> 4) | ((high >> (2 * run)) & 3) << 4;
  const float d = half_to_float(load16(block + 208)) * static_cast<int8_t>(block[192 + j / 16]);
  return {d * (u - 32), std::fabs(d * (u - 32)), d * (u - 32)};
}

float float_source(Source source, const uint8_t* row, int i) {
  float x;
  if (source == Source::f16) return half_to_float(load16(row + 2 * i));
  if (source == Source::bf16) return bf16_to_float(load16(row + 2 * i));
  std::memcpy(&x, row + 4 * i, 4);
  return x;
}

std::vector<Weight> weights_of(const Case& test, const uint8_t* row, int k) {
  std::vector<Weight> out(k);
  for (int i = 0; i < k; i++) {
    if (source_group(test.source) > 1) {
      out[i] = quantised(test.source, row, i);
      continue;
    }
    float x = float_source(test.source, row, i);
    if (test.format == Format::bf16) x = bf16_to_float(float_to_bf16(x));
    if (test.format == Format::q8) {
      float top = 0.0f;
      for (int j = i / 32 * 32; j < i / 32 * 32 + 32 && j < k; j++) {
        top = std::fmax(top, std::fabs(float_source(test.source, row, j)));
      }
      const float d = half_to_float(float_to_half(top / 127.0f));
      x = d == 0.0f ? 0.0f : d * std::fmin(127.0f, std::fmax(-127.0f, std::nearbyint(x * (1.0f / d))));
    }
    out[i] = {x, std::fabs(x), x};
  }
  return out;
}

struct Aligned {
  explicit Aligned(size_t bytes)
      : size((bytes + 63) / 64 * 64), data(static_cast<uint8_t*>(std::aligned_alloc(64, size))) {
    std::memset(data, 0, size);
  }
  ~Aligned() { std::free(data); }
  Aligned(const Aligned&) = delete;
  size_t size;
  uint8_t* data;
};

// A packed random matrix and what its weights are.
struct Packed {
  Packed(const Case& test, int n, int k) : data(packed_bytes(test.format, n, k)), weights(n) {
    const std::vector<uint8_t> source = random_source(test.source, n, k);
    std::vector<int32_t> order(n);
    for (int i = 0; i < n; i++) order[i] = i;
    std::shuffle(order.begin(), order.end(), random_bits);
    // In two pieces, as a fused matrix would be, with its rows out of order.
    const int first = whole(0, n);
    pack(test.format, data.data, k, 0, first, test.source, source.data(), order.data());
    pack(test.format, data.data, k, first, n - first, test.source, source.data(), order.data() + first);
    for (int i = 0; i < n; i++) {
      weights[i] = weights_of(test, source.data() + order[i] * source_row_bytes(test.source, k), k);
    }
    matrix = packed_matrix(test.format, n, k, data.data);
  }
  Aligned data;
  Matrix matrix;
  std::vector<std::vector<Weight>> weights;
};

// Exactly as large as the contract asks, so that the address sanitizer sees every step outside.
struct Rounded {
  Rounded(const Kernels& kernels, const Matrix& matrix, const std::vector<float>& x, int rows, size_t ld)
      : stride(matrix.strips * kStripK + whole(0, 1) * kStripK), q(size_t(rows) * stride), scale(q.size() / 32),
        scaled_sum(q.size() / 32), f(q.size()), sum(q.size() / 16), b(q.size()),
        int8(matrix.format != Format::f32 && matrix.format != Format::bf16 && !kernels.bf16_inputs) {
    act = {stride, q.data(), scale.data(), sum.data(), scaled_sum.data(), b.data(), f.data()};
    const int middle = whole(0, rows);
    kernels.prepare(matrix, x.data(), ld, 0, middle, act);
    kernels.prepare(matrix, x.data(), ld, middle, rows - middle, act);
  }
  float value(Format format, int row, int i) const {
    const size_t at = static_cast<size_t>(row) * stride + i;
    if (format == Format::f32) return f[at];
    return int8 ? static_cast<float>(q[at]) * scale[at / 32] : bf16_to_float(b[at]);
  }
  // A weight as such inputs meet it: beside bf16 ones rounded to bf16, ties away from zero.
  float weight(Format format, const Weight& weight) const {
    if (int8 || format == Format::f32 || format == Format::bf16) return weight.value;
    return bits_float((float_bits(weight.once) + 0x8000u) & 0xffff0000u);
  }
  int32_t stride;
  std::vector<int8_t> q;
  std::vector<float> scale, scaled_sum, f;
  std::vector<int32_t> sum;
  std::vector<uint16_t> b;
  bool int8;
  Activations act;
};

std::vector<float> random_rows(int rows, size_t ld) {
  std::vector<float> x(rows * ld);
  for (auto& value : x) value = normal() * (whole(0, 49) == 0 ? 8.0f : 1.0f);
  return x;
}

void check_rounding(const std::string& where, const Rounded& rounded, const Matrix& matrix, const std::vector<float>& x,
                    int rows, size_t ld) {
  for (int r = 0; r < rows; r++) {
    for (int i = 0; i < matrix.strips * kStripK; i++) {
      const float given = i < matrix.k ? x[r * ld + i] : 0.0f, got = rounded.value(matrix.format, r, i);
      const size_t at = static_cast<size_t>(r) * rounded.stride + i;
      const float half_step = rounded.int8 ? rounded.scale[at / 32] * 0.5001f : std::fabs(given) * 0.0039063f;
      CHECK(std::fabs(got - given) <= (matrix.format == Format::f32 ? 0.0f : half_step),
            "%s row %d input %d: %g for %g", where.c_str(), r, i, got, given);
      if (!rounded.int8 || i % 16 != 0) continue;
      int sum = 0, other = 0;
      for (int j = 0; j < 16; j++) sum += rounded.q[at + j], other += rounded.q[(at / 32 * 32) + (i + 16) % 32 + j];
      CHECK(rounded.sum[at / 16] == sum, "%s row %d input %d", where.c_str(), r, i);
      const float scaled = rounded.scale[at / 32] * static_cast<float>(sum + other);
      CHECK(rounded.scaled_sum[at / 32] == scaled, "%s row %d input %d: %g, not %g", where.c_str(), r, i,
            rounded.scaled_sum[at / 32], scaled);
      float top = 0.0f;
      for (int j = i / 32 * 32; j < i / 32 * 32 + 32 && j < matrix.k; j++) {
        top = std::fmax(top, std::fabs(x[r * ld + j]));
      }
      CHECK(rounded.scale[at / 32] == top / 127.0f, "%s row %d input %d", where.c_str(), r, i);
    }
  }
}

// sum over k in double; *size bounds what rounding can cost.
double exact(const Packed& packed, const Rounded& rounded, int row, int column, double* size) {
  double sum = 0.0, sizes = 0.0;
  for (int i = 0; i < packed.matrix.k; i++) {
    const double x = rounded.value(packed.matrix.format, row, i);
    sum += rounded.weight(packed.matrix.format, packed.weights[column][i]) * x;
    sizes += packed.weights[column][i].size * std::fabs(x);
  }
  *size = sizes;
  return sum;
}
constexpr double kTolerance = 3e-6;  // of the sum of sizes: f32 sums of some hundred terms

bool same_bits(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; }

void check_values(const std::string& where, const Kernels& kernels, const Packed& packed, const Rounded& rounded,
                  int rows) {
  const int n = packed.matrix.n;
  const size_t ld = n + whole(0, 5);
  std::vector<float> bias(n), before(rows * ld), out;
  for (auto& x : bias) x = normal();
  for (auto& x : before) x = normal();
  for (int variant = 0; variant < 4; variant++) {
    const bool add = variant % 2, biased = variant / 2;
    out = before;
    kernels.linear(packed.matrix, rounded.act, 0, rows, 0, packed.matrix.blocks, biased ? bias.data() : nullptr, add,
                   out.data(), ld);
    for (int r = 0; r < rows; r++) {
      for (size_t c = 0; c < ld; c++) {
        const float got = out[r * ld + c], old = before[r * ld + c];
        if (c >= static_cast<size_t>(n)) {
          CHECK(same_bits(got, old), "%s wrote behind column %d", where.c_str(), n);
          continue;
        }
        double size;
        double want = exact(packed, rounded, r, static_cast<int>(c), &size);
        if (biased) want += bias[c], size += std::fabs(bias[c]);
        if (add) want += old, size += std::fabs(old);
        CHECK(std::fabs(got - want) <= kTolerance * size + 1e-30, "%s row %d column %zu: %.9g, not %.9g (size %g)",
              where.c_str(), r, c, got, want, size);
      }
    }
  }
}

void check_bits(const std::string& where, const Kernels& kernels, const Packed& packed, const Rounded& rounded,
                int rows) {
  const Matrix& matrix = packed.matrix;
  std::vector<float> whole_out(static_cast<size_t>(rows) * matrix.n);
  kernels.linear(matrix, rounded.act, 0, rows, 0, matrix.blocks, nullptr, false, whole_out.data(), matrix.n);
  for (int count : {1, 2, 5, 8, 12, 16, 33, 64, 65}) {
    if (count > rows) continue;
    const int row0 = whole(0, rows - count), block0 = whole(0, matrix.blocks - 1);
    const int blocks = whole(1, matrix.blocks - block0);
    std::vector<float> out(whole_out.size(), 77.0f);
    kernels.linear(matrix, rounded.act, row0, count, block0, blocks, nullptr, false, out.data(), matrix.n);
    for (int r = 0; r < rows; r++) {
      for (int c = 0; c < matrix.n; c++) {
        const bool inside = r >= row0 && r < row0 + count && c / 16 >= block0 && c / 16 < block0 + blocks;
        const size_t at = static_cast<size_t>(r) * matrix.n + c;
        CHECK(same_bits(out[at], inside ? whole_out[at] : 77.0f), "%s rows %d+%d of %d, blocks %d+%d: row %d column %d",
              where.c_str(), row0, count, rows, block0, blocks, r, c);
      }
    }
  }
}

void check_dequantised(const std::string& where, const Kernels& kernels, const Packed& packed) {
  std::vector<float> out(packed.matrix.k);
  for (int row = 0; row < packed.matrix.n; row++) {
    kernels.dequantize_row(packed.matrix, row, out.data());
    for (int i = 0; i < packed.matrix.k; i++) {
      const Weight& want = packed.weights[row][i];
      CHECK(out[i] == want.value, "%s row %d input %d: %g, not %g", where.c_str(), row, i, out[i], want.value);
    }
  }
}

void check_swiglu(const std::string& where, const Kernels& kernels, const Case& test, int k) {
  const int groups = whole(1, 4), hidden = groups * 32, rows = whole(1, 70);
  const Packed packed(test, groups * 64, k);
  const std::vector<float> x = random_rows(rows, k);
  const Rounded rounded(kernels, packed.matrix, x, rows, k);
  std::vector<float> bias(groups * 64), sums(static_cast<size_t>(rows) * groups * 64);
  std::vector<float> out(static_cast<size_t>(rows) * hidden);
  for (auto& b : bias) b = normal();
  for (const float* offset : {static_cast<const float*>(nullptr), static_cast<const float*>(bias.data())}) {
    kernels.linear(packed.matrix, rounded.act, 0, rows, 0, packed.matrix.blocks, offset, false, sums.data(),
                   groups * 64);
    kernels.linear_swiglu(packed.matrix, rounded.act, 0, rows, 0, groups, offset, out.data(), hidden);
    for (int r = 0; r < rows; r++) {
      for (int c = 0; c < hidden; c++) {
        const size_t gate = static_cast<size_t>(r) * groups * 64 + c / 32 * 64 + c % 32;
        const double g = sums[gate], want = g / (1.0 + std::exp(-g)) * sums[gate + 32], got = out[r * hidden + c];
        CHECK(std::fabs(got - want) <= 1e-6 * std::fabs(want) + 1e-30, "%s row %d column %d: %.9g, not %.9g",
              where.c_str(), r, c, got, want);
      }
    }
    const int row = whole(0, rows - 1), group = whole(0, groups - 1);
    std::vector<float> one(out.size(), 77.0f);
    kernels.linear_swiglu(packed.matrix, rounded.act, row, 1, group, 1, offset, one.data(), hidden);
    for (size_t i = 0; i < one.size(); i++) {
      const bool inside = i / hidden == static_cast<size_t>(row) && i % hidden / 32 == static_cast<size_t>(group);
      CHECK(same_bits(one[i], inside ? out[i] : 77.0f), "%s row %d group %d", where.c_str(), row, group);
    }
  }
}

// An infinity or a NaN among the inputs must show in every output of its row, and in no other.
void check_poison(const std::string& where, const Kernels& kernels, const Packed& packed, int rows) {
  const Matrix& matrix = packed.matrix;
  std::vector<float> x = random_rows(rows, matrix.k);
  const int bad = whole(0, rows - 1);
  x[static_cast<size_t>(bad) * matrix.k + whole(0, matrix.k - 1)] = whole(0, 1) ? NAN : INFINITY;
  const Rounded rounded(kernels, matrix, x, rows, matrix.k);
  std::vector<float> out(static_cast<size_t>(rows) * matrix.n);
  kernels.linear(matrix, rounded.act, 0, rows, 0, matrix.blocks, nullptr, false, out.data(), matrix.n);
  for (size_t i = 0; i < out.size(); i++) {
    const bool poisoned = i / matrix.n == static_cast<size_t>(bad);
    CHECK(std::isfinite(out[i]) != poisoned, "%s row %zu of %d (bad: %d): %g", where.c_str(), i / matrix.n, rows, bad,
          out[i]);
  }
}

void check_case(const Kernels& kernels, const Case& test, int round) {
  const int group = source_group(test.source);
  // Some are longer than the inputs that stay in the level 1 cache (640).
  const int most = round % 4 == 3 ? 2400 : 600;
  const int k = group == 1 ? whole(1, most) : group * whole(1, most / group);
  const int n = whole(1, round % 2 ? 40 : 150), rows = whole(1, 70);
  const std::string where = std::string(kernels.name) + " " + test.name + " n " + std::to_string(n) + " k " +
                            std::to_string(k) + " rows " + std::to_string(rows);
  const Packed packed(test, n, k);
  const size_t ld = k + whole(0, 3);
  const std::vector<float> x = random_rows(rows, ld);
  const Rounded rounded(kernels, packed.matrix, x, rows, ld);
  check_rounding(where, rounded, packed.matrix, x, rows, ld);
  check_values(where, kernels, packed, rounded, rows);
  check_dequantised(where, kernels, packed);
  check_poison(where, kernels, packed, rows);
  check_swiglu(where, kernels, test, k);
  const int many = round == 0 ? 530 : 70;  // more than one panel
  const std::vector<float> more = random_rows(many, k);
  check_bits(where, kernels, packed, Rounded(kernels, packed.matrix, more, many, k), many);
}

// More inputs than a thread's scratch for bf16 weights holds (16,384), and more rows than go through in one pass.
void check_long(const Kernels& kernels, const Case& test) {
  const int k = 16384 + 256, n = 33, rows = 70;
  const Packed packed(test, n, k);
  const std::vector<float> x = random_rows(rows, k);
  const Rounded rounded(kernels, packed.matrix, x, rows, k);
  check_bits(std::string(kernels.name) + " " + test.name + " long", kernels, packed, rounded, rows);
  std::vector<float> out(static_cast<size_t>(rows) * n);
  kernels.linear(packed.matrix, rounded.act, 0, rows, 0, packed.matrix.blocks, nullptr, false, out.data(), n);
  for (int r : {0, 63, 64, 69}) {
    for (int c : {0, 15, 32}) {
      double size;
      const double want = exact(packed, rounded, r, c, &size);
      CHECK(std::fabs(out[r * n + c] - want) <= kTolerance * size, "%s row %d column %d: %g, not %g", test.name, r, c,
            out[r * n + c], want);
    }
  }
}

void check_halves() {
  for (uint32_t bits = 0; bits < 0x10000; bits++) {
    const uint16_t half = static_cast<uint16_t>(bits);
    const float x = half_to_float(half);
    CHECK(std::isnan(x) ? (half & 0x7fff) > 0x7c00 : float_to_half(x) == half, "f16 %04x", bits);
    const int exponent = half >> 10 & 31, fraction = half & 1023;
    if (exponent == 31) continue;
    const double unit = std::ldexp(half & 0x8000 ? -1.0 : 1.0, (exponent ? exponent : 1) - 25);
    const double want = (exponent ? 1024 + fraction : fraction) * unit;
    CHECK(x == want, "f16 %04x: %g, not %g", bits, x, want);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 4;
  check_halves();
  for (const Kernels* const* table = kernels_available(); *table != nullptr; table++) {
    for (const Case& test : kCases) {
      for (int round = 0; round < rounds; round++) check_case(**table, test, round);
      if (test.source == Source::q4_1 || test.source == Source::q6_k) check_long(**table, test);
    }
    std::printf("linear: %s ok\n", (*table)->name);
  }
  return 0;
}
