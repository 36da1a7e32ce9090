// The table of kernels in plain loops, for f32 matrices: what the other tables are compared with, and what the drivers
// are tested on where no instruction set is in question.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "../kernels.h"

namespace samovar::plain {

inline uint16_t to_bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
inline float from_bf16(uint16_t x) {
  const uint32_t bits = static_cast<uint32_t>(x) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline float weight(const Matrix& matrix, int column, int k) {
  const float* strip = reinterpret_cast<const float*>(matrix.strip(column / kLanes, k / kStripK));
  return strip[k % kStripK * kLanes + column % kLanes];
}

inline void prepare(const Matrix& matrix, const float* x, size_t ld, int row0, int rows, const Activations& act) {
  for (int row = row0; row < row0 + rows; row++) {
    float* to = act.f + static_cast<size_t>(row) * act.stride;
    std::memcpy(to, x + row * ld, matrix.k * sizeof(float));
    std::fill(to + matrix.k, to + matrix.strips * kStripK, 0.0f);
  }
}

inline float product(const Matrix& matrix, const Activations& act, int row, int column, const float* bias) {
  const float* x = act.f + static_cast<size_t>(row) * act.stride;
  float sum = 0;
  for (int k = 0; k < matrix.k; k++) sum += x[k] * weight(matrix, column, k);
  return bias == nullptr ? sum : sum + bias[column];
}

inline void linear(const Matrix& matrix, const Activations& act, int row0, int rows, int block0, int blocks,
                   const float* bias, bool add, float* out, size_t out_ld) {
  const int end = std::min(matrix.n, (block0 + blocks) * kLanes);
  for (int row = row0; row < row0 + rows; row++) {
    for (int column = block0 * kLanes; column < end; column++) {
      float& to = out[row * out_ld + column];
      const float y = product(matrix, act, row, column, bias);
      to = add ? to + y : y;
    }
  }
}

inline void linear_swiglu(const Matrix& matrix, const Activations& act, int row0, int rows, int group0, int groups,
                          const float* bias, float* out, size_t out_ld) {
  for (int row = row0; row < row0 + rows; row++) {
    for (int column = group0 * 32; column < (group0 + groups) * 32; column++) {
      const int gate_column = column / 32 * 64 + column % 32;
      const float gate = product(matrix, act, row, gate_column, bias);
      out[row * out_ld + column] = gate / (1 + std::exp(-gate)) * product(matrix, act, row, gate_column + 32, bias);
    }
  }
}

inline void dequantize_row(const Matrix& matrix, int row, float* out) {
  for (int k = 0; k < matrix.k; k++) out[k] = weight(matrix, row, k);
}

inline void rms_norm(const float* x, size_t ld, const float* weight, float eps, int rows, int n, float* out,
                     size_t out_ld) {
  for (int row = 0; row < rows; row++) {
    float sum = 0;
    for (int i = 0; i < n; i++) sum += x[row * ld + i] * x[row * ld + i];
    const float factor = 1 / std::sqrt(sum / n + eps);
    for (int i = 0; i < n; i++) out[row * out_ld + i] = x[row * ld + i] * factor * weight[i];
  }
}

inline void rope(float* x, const float* cos, const float* sin, int head_dim) {
  const int half = head_dim / 2;
  for (int i = 0; i < half; i++) {
    const float a = x[i], b = x[i + half];
    x[i] = a * cos[i] - b * sin[i];
    x[i + half] = b * cos[i] + a * sin[i];
  }
}

// Of a bf16 pool; `tile` in bytes.
inline uint16_t& key_at(const KVPool& pool, size_t tile, int token, int dim) {
  return reinterpret_cast<uint16_t*>(pool.keys + tile)[dim / 2 * 2 * kTileTokens + 2 * token + dim % 2];
}
inline uint16_t& value_at(const KVPool& pool, size_t tile, int token, int dim) {
  return reinterpret_cast<uint16_t*>(pool.values + tile)[token / 2 * 2 * pool.head_dim + 2 * dim + token % 2];
}

inline void write_kv(const KVPool& pool, int64_t slot, const float* k, const float* v) {
  const int64_t block = slot / pool.block_tokens;
  const int at = static_cast<int>(slot % pool.block_tokens);
  for (int head = 0; head < pool.kv_heads; head++) {
    const size_t tile = pool.tile(&block, at, head);
    for (int dim = 0; dim < pool.head_dim; dim++) {
      key_at(pool, tile, at % kTileTokens, dim) = to_bf16(k[head * pool.head_dim + dim]);
      value_at(pool, tile, at % kTileTokens, dim) = to_bf16(v[head * pool.head_dim + dim]);
    }
  }
}

inline void attend_one(const KVPool& pool, const int64_t* table, int kv_head, int low, int high, const float* q,
                       float scale, Partial* partial, float* values) {
  std::vector<float> scores;
  *partial = {-std::numeric_limits<float>::infinity(), 0};
  std::fill(values, values + pool.head_dim, 0.0f);
  for (int at = low; at < high; at++) {
    const size_t tile = pool.tile(table, at, kv_head);
    float score = 0;
    for (int dim = 0; dim < pool.head_dim; dim++) {
      score += from_bf16(to_bf16(q[dim])) * from_bf16(key_at(pool, tile, at % kTileTokens, dim));
    }
    scores.push_back(score * scale);
    partial->top = std::max(partial->top, scores.back());
  }
  for (int at = low; at < high; at++) {
    const size_t tile = pool.tile(table, at, kv_head);
    const float p = from_bf16(to_bf16(std::exp(scores[at - low] - partial->top)));
    partial->total += p;
    for (int dim = 0; dim < pool.head_dim; dim++) {
      values[dim] += p * from_bf16(value_at(pool, tile, at % kTileTokens, dim));
    }
  }
}

inline void attend_chunk(const KVPool& pool, const int64_t* table, int kv_head, int chunk, const float* q, size_t q_ld,
                         int heads, int queries, int start, float scale, Partial* partial, float* values) {
  for (int i = 0; i < queries; i++) {
    for (int head = 0; head < heads; head++) {
      const size_t at = static_cast<size_t>(i) * heads + head;
      attend_one(pool, table, kv_head, chunk * kChunkTokens, std::min((chunk + 1) * kChunkTokens, start + i + 1),
                 q + i * q_ld + static_cast<size_t>(head) * pool.head_dim, scale, partial + at,
                 values + at * pool.head_dim);
    }
  }
}

inline void merge(Partial* into, float* into_values, const Partial& chunk, const float* chunk_values, int head_dim) {
  if (chunk.total == 0) return;
  const float top = std::max(into->top, chunk.top);
  const float before = std::exp(into->top - top), added = std::exp(chunk.top - top);
  *into = {top, into->total * before + chunk.total * added};
  for (int i = 0; i < head_dim; i++) into_values[i] = into_values[i] * before + chunk_values[i] * added;
}

inline void finish(const Partial& whole, const float* values, int head_dim, float* out) {
  for (int i = 0; i < head_dim; i++) out[i] = values[i] / whole.total;
}

inline void attend(const KVPool& pool, const int64_t* table, int kv_head, const float* q, size_t q_ld, int heads,
                   int queries, int start, float scale, float* out, size_t out_ld) {
  std::vector<float> values(pool.head_dim), whole_values(pool.head_dim);
  for (int i = 0; i < queries; i++) {
    for (int head = 0; head < heads; head++) {
      const float* query = q + i * q_ld + static_cast<size_t>(head) * pool.head_dim;
      Partial whole = {-std::numeric_limits<float>::infinity(), 0};
      std::fill(whole_values.begin(), whole_values.end(), 0.0f);
      for (int low = 0; low <= start + i; low += kChunkTokens) {
        Partial part;
        attend_one(pool, table, kv_head, low, std::min(low + kChunkTokens, start + i + 1), query, scale, &part,
                   values.data());
        merge(&whole, whole_values.data(), part, values.data(), pool.head_dim);
      }
      finish(whole, whole_values.data(), pool.head_dim, out + i * out_ld + static_cast<size_t>(head) * pool.head_dim);
    }
  }
}

inline int argmax(const float* x, int n, bool* finite) {
  int best = 0;
  *finite = true;
  for (int i = 0; i < n; i++) {
    *finite = *finite && std::isfinite(x[i]);
    if (x[i] > x[best]) best = i;
  }
  return best;
}

inline Kernels table() {
  return {"plain", false, prepare, linear, linear_swiglu, dequantize_row, rms_norm, rope,
          write_kv, attend_chunk, attend, merge,         finish, argmax,         nullptr,  nullptr};
}

}  // namespace samovar::plain
