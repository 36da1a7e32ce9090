// Mono decode: a whole step of a llama-family model, one token per row, in one call. The same kernels as the normal
// path over the same KV, so the same bits; the two may alternate freely.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels.h"
#include "pool.h"
#include "program.h"
#include "progress.h"

namespace samovar {

// All pointers are the caller's and outlive the decoder. A null bias means none.
struct MonoLayer {
  const float* input_norm;  // [hidden]
  Matrix qkv;               // outputs: q of all heads, k of all KV heads, v of all KV heads
  const float* qkv_bias;
  const float* qk_norm;     // [heads + kv_heads][head_dim], or null: RMS norm of each head of q and k before rotation
  Matrix attention_out;
  const float* attention_out_bias;
  const float* post_norm;   // [hidden]
  Matrix gate_up;           // [2 gate blocks][2 up blocks]..., the bias likewise
  const float* gate_up_bias;
  Matrix down;
  const float* down_bias;
  KVPool kv;
};

struct MonoModel {
  int32_t hidden;
  int32_t heads;
  int32_t kv_heads;
  int32_t head_dim;
  int32_t intermediate;
  int32_t vocab;
  int32_t max_positions;  // rows of cos and sin
  float eps;
  float attention_scale;
  const float* cos;  // [max_positions][head_dim / 2]
  const float* sin;
  Matrix embed;
  std::vector<MonoLayer> layers;
  const float* norm;  // [hidden]
  Matrix lm_head;

  int32_t group() const { return heads / kv_heads; }
  int32_t q_columns() const { return heads * head_dim; }
  int32_t qkv_columns() const { return (heads + 2 * kv_heads) * head_dim; }
};

// One token per row. Tables cover each row's position; slots are where the tokens' k and v go, distinct.
struct MonoStep {
  int32_t rows;               // 1 to kMaxRows
  const int32_t* token_ids;   // [rows]
  const int32_t* positions;   // [rows]
  const int64_t* slots;       // [rows] block * block_tokens + offset
  const int64_t* const* tables;  // [rows]
  float* logits;              // out [rows][vocab]
  int32_t* argmax;            // out [rows] first largest logit, or null
  bool* finite;               // out [rows] whether all logits are finite, or null
};

// What a buffer holds after a stage: [rows][columns].
struct MonoBuffer {
  const float* data;
  int32_t columns;
};

class MonoDecoder {
 public:
  // Keeps references to pool and kernels. Buffers are sized here once, for kMaxRows rows; only the chunk results of
  // attention grow with the contexts. Throws std::invalid_argument naming the number that does not fit.
  // A wait between threads longer than `watchdog_s` ends the step.
  MonoDecoder(Pool& pool, const Kernels& kernels, const MonoModel& model, double watchdog_s = 30);
  ~MonoDecoder();
  MonoDecoder(const MonoDecoder&) = delete;
  MonoDecoder& operator=(const MonoDecoder&) = delete;

  // When it is not done, outputs and the KV of the step's slots are unspecified; the decoder is as usable as before.
  // Throws std::invalid_argument for rows, tokens or positions out of range. One caller at a time (others wait).
  StepResult step(const MonoStep& step);

  // The step's table for these rows, and the stages [from, to) of it alone: for comparing after any stage. Running
  // [0, a), then [a, b), ... gives the bits of `step`.
  const Program& program(const MonoStep& step);
  StepResult run_stages(const MonoStep& step, int from, int to);
  // By name: "x", "qkv" (before rotation), "attention", "hidden". "attention" is whole once `attention_out` has run.
  MonoBuffer buffer(const std::string& name) const;

  // From any thread: the step that runs, if one does, ends early as `aborted`.
  void abort();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace samovar
