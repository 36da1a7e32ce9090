// Attention and elementwise kernels of every instruction set this machine runs: against double precision, against exact
// sums, and bit for bit between the ways in which a query can be computed.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "../kernels.h"
#include "check.h"
#include "inputs.h"

namespace {

using samovar::Kernels;
using samovar::kChunkTokens;
using samovar::KVFormat;
using samovar::KVPool;
using samovar::kTileTokens;
using samovar::Partial;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

struct Shape {
  int kv_heads, heads, head_dim, tokens;
  size_t kv_row() const { return static_cast<size_t>(kv_heads) * head_dim; }
  size_t q_row() const { return kv_row() * heads; }
};

// A sequence's inputs: k, v [tokens][kv_heads][head_dim], q [tokens][kv_heads][heads][head_dim].
struct Sequence {
  Shape shape;
  std::vector<float> q, k, v;
};

Sequence random_sequence(Random& random, const Shape& shape) {
  Sequence s{shape, std::vector<float>(shape.tokens * shape.q_row()), std::vector<float>(shape.tokens * shape.kv_row()),
             std::vector<float>(shape.tokens * shape.kv_row())};
  for (float& x : s.q) x = random.normal();
  for (float& x : s.v) x = random.normal();
  for (int token = 0; token < shape.tokens; token++) {
    const float size = random.one_of({0.2f, 1.0f, 2.0f});  // some tokens draw much of the weight
    for (size_t i = 0; i < shape.kv_row(); i++) s.k[token * shape.kv_row() + i] = size * random.normal();
  }
  return s;
}

// The sequence as attention over a pool of this format sees it.
Sequence as_kept(KVFormat format, Sequence s) {
  const size_t head_dim = s.shape.head_dim;
  for (std::vector<float>* all : {&s.k, &s.v}) {
    for (size_t at = 0; at < all->size(); at += head_dim) {
      float* x = all->data() + at;
      float top = 0;
      for (size_t i = 0; i < head_dim; i++) top = std::max(top, std::fabs(x[i]));
      for (size_t i = 0; i < head_dim; i++) {
        if (format == KVFormat::bf16) x[i] = rounded_to_bf16(x[i]);
        if (format == KVFormat::int8) x[i] = top == 0 ? 0 : std::nearbyint(x[i] * (127.0f / top)) * (top / 127.0f);
      }
    }
  }
  if (format == KVFormat::bf16) {
    for (float& x : s.q) x = rounded_to_bf16(x);
  }
  return s;
}

// A paged cache for one sequence: blocks in random order among others, every slot full of garbage at first.
struct Cache {
  std::vector<uint16_t> memory;
  KVPool pool;
  std::vector<int64_t> blocks;

  Cache(Random& random, const Shape& shape, KVFormat format, int block_tokens, uint16_t garbage) {
    const int needed = (shape.tokens + block_tokens - 1) / block_tokens, all = needed + random.whole(0, 3);
    pool = KVPool{nullptr, nullptr, block_tokens, shape.kv_heads, shape.head_dim, format};
    const size_t bytes = static_cast<size_t>(all) * (block_tokens / kTileTokens) * shape.kv_heads * pool.tile_bytes();
    memory.assign(bytes + 32, garbage);
    pool.keys = reinterpret_cast<uint8_t*>(memory.data());
    while (reinterpret_cast<uintptr_t>(pool.keys) % 64) pool.keys++;
    pool.values = pool.keys + bytes;
    for (int i = 0; i < all; i++) blocks.push_back(i);
    std::shuffle(blocks.begin(), blocks.end(), random.engine);
  }
  void write(const Kernels& kernels, const Sequence& s, int from, int end) {
    for (int at = from; at < end; at++) {
      const int64_t slot = blocks[at / pool.block_tokens] * pool.block_tokens + at % pool.block_tokens;
      kernels.write_kv(pool, slot, &s.k[at * s.shape.kv_row()], &s.v[at * s.shape.kv_row()]);
    }
  }
  // Exactly the entries that a context of this length has.
  std::vector<int64_t> table(int context) const {
    return {blocks.begin(), blocks.begin() + (context + pool.block_tokens - 1) / pool.block_tokens};
  }
};

float scale_of(const Shape& shape) { return 1.0f / std::sqrt(static_cast<float>(shape.head_dim)); }

// Attends with queries [start, start + queries) in one call per KV head and chunk; writes their rows of out.
void attend(const Kernels& kernels, const Cache& cache, const Sequence& s, int start, int queries,
            std::vector<float>* out) {
  const Shape& shape = s.shape;
  const int context = start + queries, rows = queries * shape.heads;
  const std::vector<int64_t> table = cache.table(context);
  std::vector<Partial> running(rows), partial(rows);
  std::vector<float> running_values(static_cast<size_t>(rows) * shape.head_dim), values(running_values.size());
  for (int head = 0; head < shape.kv_heads; head++) {
    const size_t column = static_cast<size_t>(head) * shape.heads * shape.head_dim;
    for (Partial& row : running) row = {-kInfinity, 0.0f};
    for (int chunk = 0; chunk * kChunkTokens < context; chunk++) {
      kernels.attend_chunk(cache.pool, table.data(), head, chunk, &s.q[start * shape.q_row() + column], shape.q_row(),
                           shape.heads, queries, start, scale_of(shape), partial.data(), values.data());
      for (int row = 0; row < rows; row++) {
        const size_t at = static_cast<size_t>(row) * shape.head_dim;
        kernels.merge(&running[row], &running_values[at], partial[row], &values[at], shape.head_dim);
      }
    }
    for (int row = 0; row < rows; row++) {
      kernels.finish(running[row], &running_values[static_cast<size_t>(row) * shape.head_dim], shape.head_dim,
                     &(*out)[(start + row / shape.heads) * shape.q_row() + column + row % shape.heads * shape.head_dim]);
    }
  }
}

// One query against double precision, both over s as it is kept. The weights are rounded to bf16 after an exponential of error 9e-5, so each is off
// by at most `off`; that moves their mean by at most off * (mean distance of the values from it). Over an int8 pool queries and weights keep 15 bits at least,
// but the weights' sum is over others than what multiplies the values: the mean moves by off * (mean size of the values).
void check_query(const Kernels& kernels, const Sequence& s, KVFormat format, int at, int head, const float* got) {
  const Shape& shape = s.shape;
  const double off = format == KVFormat::int8 ? 1e-3 : 1.0 / 256 + 2e-4;
  const float* q = &s.q[at * shape.q_row() + static_cast<size_t>(head) * shape.head_dim];
  const size_t column = static_cast<size_t>(head / shape.heads) * shape.head_dim;
  std::vector<double> weights(at + 1);
  double top = -kInfinity, total = 0;
  for (int token = 0; token <= at; token++) {
    const float* key = &s.k[token * shape.kv_row() + column];
    double dot = 0;
    for (int i = 0; i < shape.head_dim; i++) dot += static_cast<double>(q[i]) * key[i];
    weights[token] = dot * scale_of(shape);
    top = std::max(top, weights[token]);
  }
  for (double& weight : weights) total += weight = std::exp(weight - top);
  for (int i = 0; i < shape.head_dim; i++) {
    double mean = 0, distance = 0;
    const float* value = &s.v[column + i];
    for (int token = 0; token <= at; token++) mean += weights[token] / total * value[token * shape.kv_row()];
    for (int token = 0; token <= at; token++) {
      const double from = format == KVFormat::int8 ? 0 : mean;
      distance += weights[token] / total * std::fabs(value[token * shape.kv_row()] - from);
    }
    CHECK(std::fabs(got[i] - mean) <= off * distance + 2e-5,
          "%s: token %d head %d dimension %d of %d: %.7g, expected %.7g +- %.2g", kernels.name, at, head, i,
          shape.head_dim, got[i], mean, off * distance);
  }
}

Shape random_shape(Random& random, int most_tokens) {
  return Shape{random.whole(1, 3), random.one_of({1, 2, 3, 4, 5, 7, 8, 16}), random.one_of({32, 64, 64, 96, 128, 256}),
               random.whole(1, most_tokens)};
}

uint16_t random_garbage(Random& random) {
  return random.one_of<uint16_t>({0x7fc0, 0xffff, 0x7f80, 0xff80, 0x0000, 0x4049});
}

void test_reference(const Kernels& kernels, Random& random, KVFormat format, int most_tokens) {
  const Shape shape = random_shape(random, most_tokens);
  const Sequence s = random_sequence(random, shape);
  Cache cache(random, shape, format, random.one_of({16, 32, 64}), random_garbage(random));
  const int queries = std::min({random.whole(1, 21), 64 / shape.heads, shape.tokens}), start = shape.tokens - queries;
  cache.write(kernels, s, 0, shape.tokens);
  std::vector<float> out(shape.tokens * shape.q_row());
  attend(kernels, cache, s, start, queries, &out);
  const Sequence kept = as_kept(format, s);
  for (int at : {start, shape.tokens - 1}) {
    for (int head = 0; head < shape.kv_heads * shape.heads; head++) {
      check_query(kernels, kept, format, at, head, &out[at * shape.q_row() + static_cast<size_t>(head) * shape.head_dim]);
    }
  }
}

// With equal scores every visible token weighs 1 and nothing is rounded: counts and sums come out exactly.
void test_exact_sums(const Kernels& kernels, Random& random, KVFormat format) {
  const Shape shape = random_shape(random, 700);
  Sequence s = random_sequence(random, shape);
  for (float& x : s.k) x = 0.0f;
  for (float& x : s.v) x = static_cast<float>(random.whole(-8, 8));
  for (size_t at = 0; format == KVFormat::int8 && at < s.v.size(); at += shape.head_dim) s.v[at] = 127.0f;
  Cache cache(random, shape, format, random.one_of({16, 32, 64}), random_garbage(random));
  cache.write(kernels, s, 0, shape.tokens);
  const int queries = std::min({random.whole(1, 64), 64 / shape.heads, shape.tokens});
  const int start = random.whole(0, shape.tokens - queries), rows = queries * shape.heads;
  const std::vector<int64_t> table = cache.table(shape.tokens);
  const int head = random.whole(0, shape.kv_heads - 1);
  std::vector<Partial> partial(rows);
  std::vector<float> values(static_cast<size_t>(rows) * shape.head_dim);
  for (int chunk = 0; chunk * kChunkTokens < start + queries; chunk++) {
    kernels.attend_chunk(cache.pool, table.data(), head, chunk, &s.q[start * shape.q_row()], shape.q_row(), shape.heads,
                         queries, start, scale_of(shape), partial.data(), values.data());
    for (int row = 0; row < rows; row++) {
      const int low = chunk * kChunkTokens, high = std::min(low + kChunkTokens, start + row / shape.heads + 1);
      const int visible = std::max(0, high - low);
      CHECK(partial[row].total == static_cast<float>(visible), "%s: total %g of %d tokens", kernels.name,
            partial[row].total, visible);
      CHECK(partial[row].top == (visible > 0 ? 0.0f : -kInfinity), "%s: top %g", kernels.name, partial[row].top);
      for (int i = 0; i < shape.head_dim; i++) {
        float sum = 0;
        for (int token = low; token < high; token++) {
          sum += s.v[token * shape.kv_row() + static_cast<size_t>(head) * shape.head_dim + i];
        }
        const float got = values[static_cast<size_t>(row) * shape.head_dim + i];
        CHECK(got == sum, "%s: sum %g, expected %g", kernels.name, got, sum);
      }
    }
  }
}

// A query's bits are the same: computed right after its token was written, alone; in groups with later queries; the
// prompt in other pieces, other blocks, other garbage.
void test_same_bits(const Kernels& kernels, Random& random, KVFormat format, int most_tokens) {
  const Shape shape = random_shape(random, most_tokens);
  const Sequence s = random_sequence(random, shape);
  const int first = std::max(0, shape.tokens - random.whole(1, 60));
  std::vector<float> alone(shape.tokens * shape.q_row());
  Cache decode(random, shape, format, 16, 0x7fc0);
  decode.write(kernels, s, 0, first);
  for (int at = first; at < shape.tokens; at++) {
    decode.write(kernels, s, at, at + 1);
    attend(kernels, decode, s, at, 1, &alone);
  }
  for (int arrangement = 0; arrangement < 3; arrangement++) {
    std::vector<float> grouped(alone.size());
    Cache cache(random, shape, format, random.one_of({16, 32, 64}), random_garbage(random));
    const int piece = arrangement == 0 ? shape.tokens : random.whole(1, 40);  // tokens computed at once
    cache.write(kernels, s, 0, first);
    for (int from = first; from < shape.tokens; from += piece) {
      const int end = std::min(from + piece, shape.tokens);
      cache.write(kernels, s, from, end);
      for (int at = from; at < end;) {
        const int queries = std::min({random.whole(1, 64), 64 / shape.heads, end - at});
        attend(kernels, cache, s, at, queries, &grouped);
        at += queries;
      }
    }
    CHECK(same_bits(alone, grouped), "%s: %d heads of %d, tokens %d to %d", kernels.name, shape.heads, shape.head_dim,
          first, shape.tokens);
  }
}

// Non-finite inputs of a row end in that row's output, not in silence.
void test_nan_is_kept(const Kernels& kernels, Random& random, KVFormat format) {
  const Shape shape{1, 3, 64, 40};
  Sequence s = random_sequence(random, shape);
  s.q[39 * shape.q_row() + 64 + 5] = std::nanf("");
  Cache cache(random, shape, format, 16, 0x7fc0);
  cache.write(kernels, s, 0, shape.tokens);
  std::vector<float> out(shape.tokens * shape.q_row());
  attend(kernels, cache, s, 38, 2, &out);
  for (int head = 0; head < 3; head++) {
    for (int i = 0; i < 64; i++) {
      CHECK(std::isfinite(out[38 * shape.q_row() + head * 64 + i]), "%s: a neighbour's NaN", kernels.name);
      CHECK(std::isnan(out[39 * shape.q_row() + head * 64 + i]) == (head == 1), "%s: head %d", kernels.name, head);
    }
  }
}

void test_layout(const Kernels& kernels, Random& random) {
  const int block_tokens = random.one_of({16, 32, 64}), heads = random.whole(1, 4), head_dim = random.one_of({32, 96, 256});
  const size_t token_elements = static_cast<size_t>(heads) * head_dim, elements = 3 * block_tokens * token_elements;
  std::vector<uint16_t> keys(elements, 0x1234), values(elements, 0x1234);
  std::vector<float> k(token_elements), v(token_elements);
  for (float& x : k) x = random.normal();
  for (float& x : v) x = random.normal();
  k[0] = v[0] = 1.00390625f;  // half way between two bf16: to even
  k[1] = v[1] = 1.01171875f;
  k[2] = v[2] = kInfinity;
  const KVPool pool{reinterpret_cast<uint8_t*>(keys.data()), reinterpret_cast<uint8_t*>(values.data()), block_tokens,
                    heads, head_dim};
  const int slot = random.whole(0, 3 * block_tokens - 1), tile = slot / kTileTokens, token = slot % kTileTokens;
  kernels.write_kv(pool, slot, k.data(), v.data());
  for (int head = 0; head < heads; head++) {
    for (int dim = 0; dim < head_dim; dim++) {
      const size_t base = (static_cast<size_t>(tile) * heads + head) * kTileTokens * head_dim;
      const size_t key = base + (dim / 2 * kTileTokens + token) * 2 + dim % 2;
      const size_t value = base + (static_cast<size_t>(token / 2) * head_dim + dim) * 2 + token % 2;
      const size_t from = static_cast<size_t>(head) * head_dim + dim;
      CHECK(keys[key] == bits_of(rounded_to_bf16(k[from])) >> 16, "%s: key of dimension %d", kernels.name, dim);
      CHECK(values[value] == bits_of(rounded_to_bf16(v[from])) >> 16, "%s: value of dimension %d", kernels.name, dim);
      keys[key] = values[value] = 0x1234;
    }
  }
  for (size_t i = 0; i < elements; i++) {
    CHECK(keys[i] == 0x1234 && values[i] == 0x1234, "%s: wrote element %zu of others", kernels.name, i);
  }
  k[0] = std::nanf("");
  kernels.write_kv(pool, 0, k.data(), v.data());
  CHECK((keys[0] & 0x7f80) == 0x7f80 && (keys[0] & 0x7f), "%s: NaN became %x", kernels.name, keys[0]);
}

void test_int8_layout(const Kernels& kernels, Random& random) {
  const int block_tokens = random.one_of({16, 32, 64}), heads = random.whole(1, 4), head_dim = random.one_of({32, 96, 256});
  KVPool pool{nullptr, nullptr, block_tokens, heads, head_dim, KVFormat::int8};
  const size_t bytes = static_cast<size_t>(3 * block_tokens / kTileTokens) * heads * pool.tile_bytes();
  std::vector<uint8_t> keys(bytes, 0x99), values(bytes, 0x99);
  pool.keys = keys.data();
  pool.values = values.data();
  std::vector<float> k(static_cast<size_t>(heads) * head_dim), v(k.size());
  for (float& x : k) x = random.normal();
  for (float& x : v) x = random.normal();
  k[0] = -127.0f;  // a scale of 1: halves go to even numbers
  k[1] = 0.5f;
  k[2] = 1.5f;
  k[3] = -2.5f;
  std::fill_n(v.begin(), head_dim, 1e-31f);
  const int slot = random.whole(0, 3 * block_tokens - 1), tile = slot / kTileTokens, token = slot % kTileTokens;
  kernels.write_kv(pool, slot, k.data(), v.data());
  // The byte of an element; the original is put back, so that what is left must be others'.
  const auto taken = [](std::vector<uint8_t>& memory, size_t at) {
    const int8_t value = static_cast<int8_t>(memory[at]);
    memory[at] = 0x99;
    return static_cast<int>(value);
  };
  for (int head = 0; head < heads; head++) {
    const size_t base = (static_cast<size_t>(tile) * heads + head) * pool.tile_bytes();
    const size_t scale_at = base + pool.tile_elements() + 4 * token;
    for (bool key : {true, false}) {
      std::vector<uint8_t>& memory = key ? keys : values;
      const float* x = (key ? k : v).data() + static_cast<size_t>(head) * head_dim;
      float top = 0, scale;
      for (int dim = 0; dim < head_dim; dim++) top = std::max(top, std::fabs(x[dim]));
      const bool nothing = top < 1e-30f;
      std::memcpy(&scale, &memory[scale_at], sizeof scale);
      CHECK(scale == (nothing ? 0 : top / 127), "%s: scale %g of %g", kernels.name, scale, top);
      std::fill_n(&memory[scale_at], sizeof scale, 0x99);
      for (int dim = 0; dim < head_dim; dim++) {
        const size_t at = key ? (dim / 4 * kTileTokens + token) * 4 + dim % 4 : (token / 4 * head_dim + dim) * 4 + token % 4;
        const int q = taken(memory, base + at), expected = nothing ? 0 : std::nearbyint(x[dim] * (127 / top));
        CHECK(q == expected, "%s: %s of dimension %d: %d, expected %d", kernels.name, key ? "key" : "value", dim, q, expected);
      }
    }
  }
  for (size_t i = 0; i < bytes; i++) {
    CHECK(keys[i] == 0x99 && values[i] == 0x99, "%s: wrote byte %zu of others", kernels.name, i);
  }
}

// A token that is not finite spoils the rows that see it. (An earlier one of the same call as well if it is a value: zero
// times NaN. Either pool has that.)
void test_int8_keeps_what_is_not_finite(const Kernels& kernels, Random& random) {
  const Shape shape{1, 2, 64, 40};
  for (float bad : {std::nanf(""), kInfinity, -kInfinity}) {
    for (bool key : {true, false}) {
      Sequence s = random_sequence(random, shape);
      (key ? s.k : s.v)[39 * shape.kv_row() + 7] = bad;
      Cache cache(random, shape, KVFormat::int8, 16, 0x7fc0);
      cache.write(kernels, s, 0, shape.tokens);
      std::vector<float> out(shape.tokens * shape.q_row());
      attend(kernels, cache, s, 38, 2, &out);
      bool spoilt = false;
      for (size_t i = 0; i < shape.q_row(); i++) {
        CHECK(!key || std::isfinite(out[38 * shape.q_row() + i]), "%s: a later token's", kernels.name);
        spoilt |= !std::isfinite(out[39 * shape.q_row() + i]);
      }
      CHECK(spoilt, "%s: %g is gone", kernels.name, bad);
    }
  }
}

// merge shows the exponential itself: nothing plus 1 * e^x.
void test_merge(const Kernels& kernels, Random& random) {
  for (int i = 0; i < 200; i++) {
    const float x = i == 0 ? 0.0f : -87.0f * static_cast<float>(random.whole(0, 1 << 20)) / (1 << 20);
    Partial into{3.0f, 2.0f};
    std::vector<float> values(32, 0.0f), ones(32, 1.0f), out(32);
    const Partial chunk{3.0f + x, 4.0f};
    const double shift = static_cast<double>(chunk.top) - 3.0;
    kernels.merge(&into, values.data(), chunk, ones.data(), 32);
    CHECK(std::fabs(values[31] / std::exp(shift) - 1) < 2e-7, "%s: e^%g = %g", kernels.name, shift, values[31]);
    CHECK(into.top == 3.0f && std::fabs(into.total - (2 + 4 * std::exp(shift))) < 1e-6, "%s", kernels.name);
    kernels.finish(into, values.data(), 32, out.data());
    CHECK(out[7] == values[7] / into.total, "%s", kernels.name);
  }
  Partial into{-kInfinity, 0.0f}, whole{-2.0f, 5.0f};
  std::vector<float> values(64, 0.0f), other(64, 7.0f);
  kernels.merge(&into, values.data(), whole, other.data(), 64);
  CHECK(into.top == -2.0f && into.total == 5.0f && same_bits(values, other), "%s: into nothing", kernels.name);
  kernels.merge(&into, values.data(), Partial{-kInfinity, 0.0f}, other.data(), 64);
  CHECK(into.top == -2.0f && into.total == 5.0f && same_bits(values, other), "%s: of nothing", kernels.name);
  kernels.merge(&into, values.data(), Partial{-1000.0f, 1.0f}, other.data(), 64);
  CHECK(into.total == 5.0f && same_bits(values, other), "%s: of next to nothing", kernels.name);
  kernels.merge(&into, values.data(), Partial{1000.0f, 1.0f}, other.data(), 64);
  CHECK(into.top == 1000.0f && into.total == 1.0f && same_bits(values, other), "%s: of all", kernels.name);
}

void test_rms_norm(const Kernels& kernels, Random& random) {
  const int rows = random.whole(1, 5), n = random.one_of({1, 7, 16, 63, 64, 100, 576, 577});
  const size_t ld = n + random.whole(0, 5), out_ld = n + random.whole(0, 5);
  std::vector<float> x(rows * ld), weight(n), out(rows * out_ld, -1.0f), alone(n), inside(n);
  for (float& value : x) value = 3 * random.normal();
  for (float& value : weight) value = random.normal();
  kernels.rms_norm(x.data(), ld, weight.data(), 1e-5f, rows, n, out.data(), out_ld);
  for (int row = 0; row < rows; row++) {
    double squares = 0;
    for (int i = 0; i < n; i++) squares += static_cast<double>(x[row * ld + i]) * x[row * ld + i];
    const double factor = 1 / std::sqrt(squares / n + 1e-5);
    for (int i = 0; i < n; i++) {
      const double expected = x[row * ld + i] * factor * weight[i];
      CHECK(std::fabs(out[row * out_ld + i] - expected) <= 1e-6 * std::fabs(expected), "%s: %g, expected %g",
            kernels.name, out[row * out_ld + i], expected);
    }
    for (size_t i = n; i < out_ld; i++) CHECK(out[row * out_ld + i] == -1.0f, "%s: wrote past the row", kernels.name);
    kernels.rms_norm(&x[row * ld], 1, weight.data(), 1e-5f, 1, n, alone.data(), 1);
    CHECK(std::memcmp(alone.data(), &out[row * out_ld], n * sizeof(float)) == 0, "%s: alone", kernels.name);
    std::copy_n(&x[row * ld], n, inside.data());
    kernels.rms_norm(inside.data(), 1, weight.data(), 1e-5f, 1, n, inside.data(), 1);
    CHECK(same_bits(alone, inside), "%s: in place", kernels.name);
  }
}

void test_rope(const Kernels& kernels, Random& random) {
  const int head_dim = random.one_of({32, 64, 96, 128, 256}), half = head_dim / 2;
  std::vector<float> x(head_dim), turned, cos(half), sin(half);
  for (float& value : x) value = random.normal();
  for (int i = 0; i < half; i++) {
    const float angle = 100 * random.normal();
    cos[i] = std::cos(angle);
    sin[i] = std::sin(angle);
  }
  turned = x;
  kernels.rope(turned.data(), cos.data(), sin.data(), head_dim);
  for (int i = 0; i < half; i++) {
    const double a = x[i], b = x[half + i];
    CHECK(std::fabs(turned[i] - (a * cos[i] - b * sin[i])) < 1e-6, "%s: dimension %d", kernels.name, i);
    CHECK(std::fabs(turned[half + i] - (b * cos[i] + a * sin[i])) < 1e-6, "%s: dimension %d", kernels.name, half + i);
  }
}

void test_argmax(const Kernels& kernels, Random& random) {
  const int n = random.one_of({1, 15, 16, 17, 511, 512, 513, 49152});
  std::vector<float> x(n);
  for (float& value : x) value = static_cast<float>(random.whole(-300, n < 1000 ? 5 : 300));
  bool finite = false;
  const auto expected = std::max_element(x.begin(), x.end()) - x.begin();
  CHECK(kernels.argmax(x.data(), n, &finite) == expected && finite, "%s: of %d", kernels.name, n);
  const int at = random.whole(0, n - 1);
  x[at] = kInfinity;
  CHECK(kernels.argmax(x.data(), n, &finite) == at && !finite, "%s: infinity at %d of %d", kernels.name, at, n);
  std::fill(x.begin(), x.end(), -kInfinity);
  CHECK(kernels.argmax(x.data(), n, &finite) == 0 && !finite, "%s: nothing", kernels.name);
  x[at] = -2.0f;
  CHECK(kernels.argmax(x.data(), n, &finite) == at && finite == (n == 1), "%s: one at %d", kernels.name, at);
  std::fill(x.begin(), x.end(), 1.0f);
  x[at] = std::nanf("");
  const int first_number = at == 0 && n > 1 ? 1 : 0;
  CHECK(kernels.argmax(x.data(), n, &finite) == first_number && !finite, "%s: NaN at %d", kernels.name, at);
}

}  // namespace

int main() {
  for (const Kernels* const* one = samovar::kernels_available(); *one; one++) {
    const Kernels& kernels = **one;
    Random random{std::mt19937(7)};
    for (int i = 0; i < 30; i++) {
      for (KVFormat format : {KVFormat::bf16, KVFormat::int8}) {
        test_reference(kernels, random, format, i < 20 ? 300 : 1500);
        test_exact_sums(kernels, random, format);
        test_same_bits(kernels, random, format, i < 20 ? 300 : 1500);
      }
      test_layout(kernels, random);
      test_int8_layout(kernels, random);
      test_rms_norm(kernels, random);
      test_rope(kernels, random);
      test_argmax(kernels, random);
    }
    for (KVFormat format : {KVFormat::bf16, KVFormat::int8}) test_nan_is_kept(kernels, random, format);
    test_int8_keeps_what_is_not_finite(kernels, random);
    test_merge(kernels, random);
    std::printf("%s: attention and elementwise kernels agree\n", kernels.name);
  }
}
