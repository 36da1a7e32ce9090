// Random models and decode states for the tests of the mono path, and the same step by the ops of the normal path.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "../mono.h"
#include "../ops.h"
#include "../pack.h"

namespace samovar::test {

using Random = std::mt19937;

inline std::vector<float> random_floats(Random& random, size_t count, float scale, float shift = 0) {
  std::uniform_real_distribution<float> uniform(-scale, scale);
  std::vector<float> values(count);
  for (float& value : values) value = shift + uniform(random);
  return values;
}

struct Sizes {
  int layers = 2, hidden = 96, heads = 6, kv_heads = 2, head_dim = 32, intermediate = 160, vocab = 203;
  int block_tokens = 16, max_positions = 1024;
  bool biases = false, qk_norm = false;
  Format format = Format::f32;
};

// Memory of packed matrices, 64-byte aligned.
class Packed {
 public:
  const uint8_t* data() const { return reinterpret_cast<const uint8_t*>(lines_.data()); }
  uint8_t* data() { return reinterpret_cast<uint8_t*>(lines_.data()); }
  explicit Packed(size_t bytes) : lines_((bytes + 63) / 64) {}

 private:
  struct alignas(64) Line {
    uint8_t bytes[64] = {};
  };
  std::vector<Line> lines_;
};

class SmallModel {
 public:
  SmallModel(const Sizes& sizes, unsigned seed) : sizes(sizes), random_(seed) {
    const Sizes& s = sizes;
    model.hidden = s.hidden;
    model.heads = s.heads;
    model.kv_heads = s.kv_heads;
    model.head_dim = s.head_dim;
    model.intermediate = s.intermediate;
    model.vocab = s.vocab;
    model.max_positions = s.max_positions;
    model.eps = 1e-5f;
    model.attention_scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim));
    const size_t angles = static_cast<size_t>(s.max_positions) * (s.head_dim / 2);
    cos_.resize(angles);
    sin_.resize(angles);
    for (size_t i = 0; i < angles; i++) {
      const double angle = static_cast<double>(i / (s.head_dim / 2)) *
                           std::pow(10000.0, -2.0 * static_cast<double>(i % (s.head_dim / 2)) / s.head_dim);
      cos_[i] = static_cast<float>(std::cos(angle));
      sin_[i] = static_cast<float>(std::sin(angle));
    }
    model.cos = cos_.data();
    model.sin = sin_.data();
    model.embed = model.lm_head = matrix(s.vocab, s.hidden);
    model.norm = vector(s.hidden, 0.5f, 1);
    for (int layer = 0; layer < s.layers; layer++) model.layers.push_back(new_layer());
  }

  Sizes sizes;
  MonoModel model;

 private:
  MonoLayer new_layer() {
    const Sizes& s = sizes;
    const int qkv = model.qkv_columns();
    MonoLayer layer{};
    layer.input_norm = vector(s.hidden, 0.5f, 1);
    layer.post_norm = vector(s.hidden, 0.5f, 1);
    layer.qkv = matrix(qkv, s.hidden);
    layer.attention_out = matrix(s.hidden, s.heads * s.head_dim);
    layer.gate_up = matrix(2 * s.intermediate, s.hidden);
    layer.down = matrix(s.hidden, s.intermediate);
    if (s.biases) {
      layer.qkv_bias = vector(qkv, 0.3f, 0);
      layer.attention_out_bias = vector(s.hidden, 0.3f, 0);
      layer.gate_up_bias = vector(2 * s.intermediate, 0.3f, 0);
      layer.down_bias = vector(s.hidden, 0.3f, 0);
    }
    if (s.qk_norm) layer.qk_norm = vector(static_cast<size_t>(s.heads + s.kv_heads) * s.head_dim, 0.5f, 1);
    layer.kv = {nullptr, nullptr, s.block_tokens, s.kv_heads, s.head_dim};
    return layer;
  }

  const float* vector(size_t count, float scale, float shift) {
    vectors_.push_back(random_floats(random_, count, scale, shift));
    return vectors_.back().data();
  }

  Matrix matrix(int n, int k) {
    const Format format = sizes.format;
    packed_.emplace_back(packed_bytes(format, n, k));
    uint8_t* data = packed_.back().data();
    if (can_pack(format, Source::f32)) {
      const std::vector<float> weights = random_floats(random_, static_cast<size_t>(n) * k, 2.0f / std::sqrt(k));
      pack(format, data, k, 0, n, Source::f32, weights.data(), nullptr);
    } else {
      fill_q4_1(n, k, data);
    }
    return packed_matrix(format, n, k, data);
  }

  // Random nibbles, one scale for all, the middle at zero.
  void fill_q4_1(int n, int k, uint8_t* data) {
    std::vector<uint8_t> raw(static_cast<size_t>(n) * (k / 32) * 20);
    for (size_t at = 0; at < raw.size(); at += 20) {
      const uint16_t scale = 0x2400, least = 0xb000 - 0x0080;  // 1/64, about -7.5/64
      std::memcpy(&raw[at], &scale, 2);
      std::memcpy(&raw[at + 2], &least, 2);
      for (int i = 4; i < 20; i++) raw[at + i] = static_cast<uint8_t>(random_());
    }
    pack(Format::q4_1, data, k, 0, n, Source::q4_1, raw.data(), nullptr);
  }

  Random random_;
  std::vector<float> cos_, sin_;
  std::vector<std::vector<float>> vectors_;
  std::vector<Packed> packed_;
};

// Rows in the middle of their generation: contexts, block tables in shuffled order, KV of what came before.
class DecodeState {
 public:
  // Contexts are the positions of the tokens to come.
  DecodeState(const SmallModel& small, std::vector<int> contexts, unsigned seed, int extra_tokens = 8)
      : model(small.model), rows(static_cast<int>(contexts.size())) {
    Random random(seed);
    const int block_tokens = small.sizes.block_tokens;
    std::vector<int> counts;
    for (int context : contexts) counts.push_back((context + extra_tokens + block_tokens - 1) / block_tokens);
    std::vector<int64_t> blocks(std::accumulate(counts.begin(), counts.end(), 0));
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), random);
    size_t at = 0;
    for (int row = 0; row < rows; row++) {
      tables.emplace_back(blocks.begin() + at, blocks.begin() + at + counts[row]);
      at += counts[row];
      positions.push_back(contexts[row]);
      token_ids.push_back(static_cast<int32_t>(random() % small.sizes.vocab));
    }
    const size_t elements = blocks.size() * block_tokens * small.sizes.kv_heads * small.sizes.head_dim;
    for (MonoLayer& layer : model.layers) {
      for (uint8_t** memory : {&layer.kv.keys, &layer.kv.values}) {
        pools_.push_back(random_bf16(random, elements));
        *memory = reinterpret_cast<uint8_t*>(pools_.back().data());
      }
    }
    place();
  }

  DecodeState(const DecodeState& other)
      : model(other.model), rows(other.rows), token_ids(other.token_ids), positions(other.positions),
        tables(other.tables), pools_(other.pools_) {
    size_t at = 0;
    for (MonoLayer& layer : model.layers) {
      layer.kv.keys = reinterpret_cast<uint8_t*>(pools_[at++].data());
      layer.kv.values = reinterpret_cast<uint8_t*>(pools_[at++].data());
    }
    place();
  }

  MonoStep step() {
    return {rows, token_ids.data(), positions.data(), slots.data(), table_pointers.data(), logits.data(),
            argmax.data(), reinterpret_cast<bool*>(finite.data())};
  }

  // The chosen tokens come next.
  void advance() {
    token_ids.assign(argmax.begin(), argmax.end());
    for (int32_t& position : positions) position++;
    place();
  }

  bool same_memory(const DecodeState& other) const { return pools_ == other.pools_; }

  MonoModel model;  // with this state's KV pools
  int rows;
  std::vector<int32_t> token_ids, positions, argmax;
  std::vector<int64_t> slots;
  std::vector<std::vector<int64_t>> tables;
  std::vector<const int64_t*> table_pointers;
  std::vector<float> logits;
  std::vector<uint8_t> finite;

 private:
  static std::vector<uint16_t> random_bf16(Random& random, size_t elements) {
    std::vector<uint16_t> values(elements);
    for (uint16_t& value : values) {
      // Sign and mantissa at random, magnitudes from 1/4 to 2.
      const uint32_t bits = random();
      value = static_cast<uint16_t>((bits & 0x8000) | ((0x7d + bits / 0x10000 % 3) << 7) | (bits & 0x7f));
    }
    return values;
  }

  void place() {
    const int block_tokens = model.layers.front().kv.block_tokens;
    slots.clear();
    table_pointers.clear();
    for (int row = 0; row < rows; row++) {
      slots.push_back(tables[row][positions[row] / block_tokens] * block_tokens + positions[row] % block_tokens);
      table_pointers.push_back(tables[row].data());
    }
    logits.assign(static_cast<size_t>(rows) * model.vocab, -1);
    argmax.assign(rows, -1);
    finite.assign(rows, 0);
  }

  std::vector<std::vector<uint16_t>> pools_;
};

// The buffers of the normal path, under the names of MonoDecoder::buffer.
struct NormalBuffers {
  std::vector<float> x, qkv, attention, hidden;
};

// The step by the ops of the normal path. `after(kind, layer)` is called where the mono path has a stage of that kind.
inline void normal_step(Pool& pool, const Kernels& kernels, DecodeState& state, NormalBuffers& buffers,
                        const std::function<void(StageKind, int)>& after = {}) {
  const MonoModel& m = state.model;
  const int rows = state.rows, q_columns = m.q_columns(), qkv_columns = m.qkv_columns();
  const auto done = [&](StageKind kind, int layer) { if (after) after(kind, layer); };
  Workspace workspace;
  std::vector<int64_t> ids(state.token_ids.begin(), state.token_ids.end());
  std::vector<int64_t> positions(state.positions.begin(), state.positions.end());
  std::vector<AttentionRow> attention_rows;
  for (int row = 0; row < rows; row++) {
    attention_rows.push_back({row, 1, state.positions[row], state.table_pointers[row]});
  }
  std::vector<float> normed(static_cast<size_t>(rows) * m.hidden), turned;
  buffers.x.resize(normed.size());
  buffers.qkv.resize(static_cast<size_t>(rows) * qkv_columns);
  buffers.attention.resize(static_cast<size_t>(rows) * q_columns);
  buffers.hidden.resize(static_cast<size_t>(rows) * m.intermediate);
  float* x = buffers.x.data();

  embed(pool, kernels, m.embed, ids.data(), rows, x, m.hidden);
  done(StageKind::embed, -1);
  for (int index = 0; index < static_cast<int>(m.layers.size()); index++) {
    const MonoLayer& layer = m.layers[index];
    rms_norm(pool, kernels, x, m.hidden, layer.input_norm, m.eps, rows, m.hidden, normed.data(), m.hidden);
    linear(pool, kernels, layer.qkv, normed.data(), rows, m.hidden, layer.qkv_bias, false, buffers.qkv.data(),
           qkv_columns, workspace);
    done(StageKind::qkv, index);
    turned = buffers.qkv;
    if (layer.qk_norm != nullptr) {
      for (int head = 0; head < m.heads + m.kv_heads; head++) {
        float* of_head = turned.data() + head * m.head_dim;
        rms_norm(pool, kernels, of_head, qkv_columns, layer.qk_norm + head * m.head_dim, m.eps, rows, m.head_dim,
                 of_head, qkv_columns);
      }
    }
    rope_rows(pool, kernels, turned.data(), qkv_columns, rows, m.heads + m.kv_heads, m.head_dim, positions.data(),
              m.cos, m.sin);
    write_kv(pool, kernels, layer.kv, state.slots.data(), turned.data() + q_columns, qkv_columns,
             turned.data() + q_columns + m.kv_heads * m.head_dim, qkv_columns, rows);
    attention(pool, kernels, layer.kv, turned.data(), qkv_columns, attention_rows.data(), rows, m.heads,
              m.attention_scale, buffers.attention.data(), q_columns, workspace);
    linear(pool, kernels, layer.attention_out, buffers.attention.data(), rows, q_columns, layer.attention_out_bias,
           true, x, m.hidden, workspace);
    done(StageKind::attention_out, index);
    rms_norm(pool, kernels, x, m.hidden, layer.post_norm, m.eps, rows, m.hidden, normed.data(), m.hidden);
    linear_swiglu(pool, kernels, layer.gate_up, normed.data(), rows, m.hidden, layer.gate_up_bias,
                  buffers.hidden.data(), m.intermediate, workspace);
    done(StageKind::gate_up, index);
    linear(pool, kernels, layer.down, buffers.hidden.data(), rows, m.intermediate, layer.down_bias, true, x, m.hidden,
           workspace);
    done(StageKind::down, index);
  }
  rms_norm(pool, kernels, x, m.hidden, m.norm, m.eps, rows, m.hidden, normed.data(), m.hidden);
  linear(pool, kernels, m.lm_head, normed.data(), rows, m.hidden, nullptr, false, state.logits.data(), m.vocab,
         workspace);
  done(StageKind::head, -1);
  argmax(pool, kernels, state.logits.data(), m.vocab, rows, m.vocab, state.argmax.data(),
         reinterpret_cast<bool*>(state.finite.data()));
  done(StageKind::argmax, -1);
}

}  // namespace samovar::test
