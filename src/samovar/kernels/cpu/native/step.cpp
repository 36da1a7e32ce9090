// The stages of a mono step. Each function is one thread's part.
#include "step.h"

#include <algorithm>
#include <cstring>

#include "chunks.h"

namespace samovar {
namespace {

int32_t widest_stride(const MonoModel& model) {
  int32_t strips = model.lm_head.strips;
  for (const MonoLayer& layer : model.layers) {
    for (const Matrix* matrix : {&layer.qkv, &layer.attention_out, &layer.gate_up, &layer.down}) {
      strips = std::max(strips, matrix->strips);
    }
  }
  return activation_stride(strips);
}

InputBuffers carve_input(Carver& carver, const MonoModel& model, bool bf16_inputs, int rows) {
  InputBuffers input{};
  input.normed = carver.take<float>(static_cast<size_t>(rows) * model.hidden);
  input.attention = carver.take<float>(static_cast<size_t>(rows) * model.q_columns());
  // Layers may differ in format: room for every form.
  input.act = take_activations(carver, {Format::q8, Format::bf16, Format::f32}, bf16_inputs, rows, widest_stride(model));
  return input;
}

class StageRun {
 public:
  StageRun(const StepView& view, int stage, int thread)
      : view_(view), model_(view.model), kernels_(view.kernels), buffers_(view.buffers), thread_(thread),
        rows_(view.program.rows), own_(view.program.own_inputs), kind_(view.program.stages[stage].kind),
        range_(view.program.range(stage, thread)),
        layer_(model_.layers.data() + std::max<int>(0, view.program.stages[stage].layer)),
        input_(own_ && !buffers_.own.empty() ? buffers_.own[thread] : buffers_.shared) {}

  void run() const {
    switch (kind_) {
      case StageKind::embed: return embed();
      case StageKind::qkv_input: return norm_input(layer_->input_norm, layer_->qkv, range_);
      case StageKind::qkv: return qkv();
      case StageKind::attend: return attend();
      case StageKind::merge: return merge();
      case StageKind::attention_out: return attention_out();
      case StageKind::gate_up_input: return norm_input(layer_->post_norm, layer_->gate_up, range_);
      case StageKind::gate_up: return gate_up();
      case StageKind::down_input: return round_input(layer_->down, buffers_.hidden, model_.intermediate, range_);
      case StageKind::down: return down();
      case StageKind::head_input: return norm_input(model_.norm, model_.lm_head, range_);
      case StageKind::head: return head();
      case StageKind::argmax: return argmax();
    }
  }

 private:
  Range all_rows() const { return {0, rows_}; }

  void round_input(const Matrix& matrix, const float* x, int ld, Range rows) const {
    if (rows.low < rows.high) kernels_.prepare(matrix, x, ld, rows.low, rows.high - rows.low, input_.act);
  }

  void norm_input(const float* weight, const Matrix& matrix, Range rows) const {
    const size_t at = static_cast<size_t>(rows.low) * model_.hidden;
    if (rows.low == rows.high) return;
    kernels_.rms_norm(buffers_.x + at, model_.hidden, weight, model_.eps, rows.high - rows.low, model_.hidden,
                      input_.normed + at, model_.hidden);
    round_input(matrix, input_.normed, model_.hidden, rows);
  }

  void linear(const Matrix& matrix, const float* bias, bool add, float* out, size_t out_ld) const {
    if (range_.low == range_.high) return;
    kernels_.linear(matrix, input_.act, 0, rows_, range_.low, range_.high - range_.low, bias, add, out, out_ld);
  }

  void embed() const {
    for (int row = range_.low; row < range_.high; row++) {
      kernels_.dequantize_row(model_.embed, view_.step.token_ids[row],
                              buffers_.x + static_cast<size_t>(row) * model_.hidden);
    }
  }

  void qkv() const {
    if (own_) norm_input(layer_->input_norm, layer_->qkv, all_rows());
    linear(layer_->qkv, layer_->qkv_bias, false, buffers_.qkv, model_.qkv_columns());
  }

  // x [head_dim] of head `index` (q heads, then KV heads), normed if the model does, and rotated, into out.
  void turn(const float* x, int index, int position, float* out) const {
    const int head_dim = model_.head_dim;
    if (layer_->qk_norm != nullptr) {
      kernels_.rms_norm(x, head_dim, layer_->qk_norm + static_cast<size_t>(index) * head_dim, model_.eps, 1, head_dim,
                        out, head_dim);
    } else {
      std::memcpy(out, x, head_dim * sizeof(float));
    }
    const size_t at = static_cast<size_t>(position) * (head_dim / 2);
    kernels_.rope(out, model_.cos + at, model_.sin + at, head_dim);
  }

  // Writes the new token's k and v of one KV head. The pool is seen as one of single-head tiles: head h of tile t is
  // tile t * kv_heads + h of that. Only the task that calls this reads the slot in this stage.
  void write_head(const float* row_qkv, int row, int kv_head) const {
    const HeadScratch& scratch = buffers_.scratch[thread_];
    const int head_dim = model_.head_dim, kv_heads = model_.kv_heads;
    const float* k = row_qkv + static_cast<size_t>(model_.heads + kv_head) * head_dim;
    turn(k, model_.heads + kv_head, view_.step.positions[row], scratch.k);
    KVPool head_pool = layer_->kv;
    head_pool.block_tokens = kTileTokens;
    head_pool.kv_heads = 1;
    const int64_t slot = view_.step.slots[row];
    const int64_t tile = slot / kTileTokens * kv_heads + kv_head;
    kernels_.write_kv(head_pool, tile * kTileTokens + slot % kTileTokens, scratch.k,
                      k + static_cast<size_t>(kv_heads) * head_dim);
  }

  void attend() const {
    const HeadScratch& scratch = buffers_.scratch[thread_];
    const int head_dim = model_.head_dim, group = model_.group();
    const Range tasks = view_.attend.ranges[thread_];
    int turned_row = -1, turned_head = -1;
    for (int index = tasks.low; index < tasks.high; index++) {
      const AttendTask& task = view_.attend.tasks[index];
      const float* row_qkv = buffers_.qkv + static_cast<size_t>(task.row) * model_.qkv_columns();
      const int position = view_.step.positions[task.row];
      if (task.row != turned_row || task.kv_head != turned_head) {
        for (int i = 0; i < group; i++) {
          const int head = task.kv_head * group + i;
          turn(row_qkv + static_cast<size_t>(head) * head_dim, head, position, scratch.q + i * head_dim);
        }
        turned_row = task.row;
        turned_head = task.kv_head;
      }
      if (task.last) write_head(row_qkv, task.row, task.kv_head);
      const size_t at = static_cast<size_t>(index) * group;
      kernels_.attend_chunk(layer_->kv, view_.step.tables[task.row], task.kv_head, task.chunk, scratch.q,
                            static_cast<size_t>(group) * head_dim, group, 1, position, model_.attention_scale,
                            buffers_.partial + at, buffers_.values + at * head_dim);
    }
  }

  void merge_head(int row, int kv_head, float* out) const {
    const int head_dim = model_.head_dim, group = model_.group();
    const int chunks = chunks_of(view_.step.positions[row] + 1);
    const size_t first = static_cast<size_t>(view_.attend.first[row] + kv_head * chunks) * group;
    for (int i = 0; i < group; i++) {
      merge_chunks(kernels_, buffers_.partial + first + i, buffers_.values + (first + i) * head_dim, group, chunks,
                   head_dim, out + static_cast<size_t>(kv_head * group + i) * head_dim);
    }
  }

  void merge_rows(Range rows) const {
    for (int row = rows.low; row < rows.high; row++) {
      for (int kv_head = 0; kv_head < model_.kv_heads; kv_head++) {
        merge_head(row, kv_head, input_.attention + static_cast<size_t>(row) * model_.q_columns());
      }
    }
    round_input(layer_->attention_out, input_.attention, model_.q_columns(), rows);
  }

  void merge() const {
    if (!own_) return merge_rows(range_);
    for (int item = range_.low; item < range_.high; item++) {
      const int row = item / model_.kv_heads;
      merge_head(row, item % model_.kv_heads,
                 buffers_.shared.attention + static_cast<size_t>(row) * model_.q_columns());
    }
  }

  void attention_out() const {
    const Matrix& matrix = layer_->attention_out;
    if (own_ && view_.program.merge_stage) {
      round_input(matrix, buffers_.shared.attention, model_.q_columns(), all_rows());
    } else if (own_) {
      merge_rows(all_rows());
    }
    linear(matrix, layer_->attention_out_bias, true, buffers_.x, model_.hidden);
  }

  void gate_up() const {
    if (own_) norm_input(layer_->post_norm, layer_->gate_up, all_rows());
    if (range_.low == range_.high) return;
    kernels_.linear_swiglu(layer_->gate_up, input_.act, 0, rows_, range_.low, range_.high - range_.low,
                           layer_->gate_up_bias, buffers_.hidden, model_.intermediate);
  }

  void down() const {
    if (own_) round_input(layer_->down, buffers_.hidden, model_.intermediate, all_rows());
    linear(layer_->down, layer_->down_bias, true, buffers_.x, model_.hidden);
  }

  // The maxima of the thread's own columns are found here, where its logits are still in its cache.
  void head() const {
    if (own_) norm_input(model_.norm, model_.lm_head, all_rows());
    linear(model_.lm_head, nullptr, false, view_.step.logits, model_.vocab);
    if (view_.step.argmax == nullptr && view_.step.finite == nullptr) return;
    const int low = std::min(range_.low * kLanes, model_.vocab), high = std::min(range_.high * kLanes, model_.vocab);
    for (int row = 0; row < rows_; row++) {
      Maximum& own = buffers_.maxima[thread_ * kMaxRows + row];
      const float* logits = view_.step.logits + static_cast<size_t>(row) * model_.vocab;
      own.index = -1;
      if (low == high) continue;
      own.index = low + kernels_.argmax(logits + low, high - low, &own.finite);
      own.value = logits[own.index];
    }
  }

  void argmax() const {
    if (thread_ != 0 || (view_.step.argmax == nullptr && view_.step.finite == nullptr)) return;
    for (int row = 0; row < rows_; row++) {
      Maximum best{0, -1, true};
      for (int thread = 0; thread < view_.program.threads; thread++) {
        const Maximum& own = buffers_.maxima[thread * kMaxRows + row];
        if (own.index < 0) continue;
        const bool finite = best.finite && own.finite;
        if (best.index < 0 || own.value > best.value) best = own;
        best.finite = finite;
      }
      if (view_.step.argmax != nullptr) view_.step.argmax[row] = best.index;
      if (view_.step.finite != nullptr) view_.step.finite[row] = best.finite;
    }
  }

  const StepView& view_;
  const MonoModel& model_;
  const Kernels& kernels_;
  const MonoBuffers& buffers_;
  const int thread_;
  const int rows_;
  const bool own_;
  const StageKind kind_;
  const Range range_;
  const MonoLayer* layer_;
  const InputBuffers& input_;
};

}  // namespace

void MonoBuffers::carve(Carver& carver, const MonoModel& model, bool bf16_inputs, int threads) {
  x = carver.take<float>(static_cast<size_t>(kMaxRows) * model.hidden);
  qkv = carver.take<float>(static_cast<size_t>(kMaxRows) * model.qkv_columns());
  hidden = carver.take<float>(static_cast<size_t>(kMaxRows) * model.intermediate);
  shared = carve_input(carver, model, bf16_inputs, kMaxRows);
  own.clear();
  scratch.clear();
  for (int thread = 0; thread < threads; thread++) {
    if (threads > 1) own.push_back(carve_input(carver, model, bf16_inputs, kOwnInputRows));
    float* q = carver.take<float>(static_cast<size_t>(model.group()) * model.head_dim);
    scratch.push_back({q, carver.take<float>(model.head_dim)});
  }
  maxima = carver.take<Maximum>(static_cast<size_t>(threads) * kMaxRows);
}

void MonoBuffers::carve_results(Carver& carver, const MonoModel& model, size_t tasks) {
  partial = carver.take<Partial>(tasks * model.group());
  values = carver.take<float>(tasks * model.group() * model.head_dim);
}

void run_stage(const StepView& view, int stage, int thread) { StageRun(view, stage, thread).run(); }

namespace {

const Matrix* matrix_of(const MonoModel& model, const Stage& stage) {
  switch (stage.kind) {
    case StageKind::qkv: return &model.layers[stage.layer].qkv;
    case StageKind::attention_out: return &model.layers[stage.layer].attention_out;
    case StageKind::gate_up: return &model.layers[stage.layer].gate_up;
    case StageKind::down: return &model.layers[stage.layer].down;
    case StageKind::head: return &model.lm_head;
    default: return nullptr;
  }
}

}  // namespace

Span weights_after(const StepView& view, int stage, int thread) {
  const int stages = static_cast<int>(view.program.stages.size());
  for (int next = stage + 1; next < std::min(stage + 3, stages); next++) {
    const Stage& entry = view.program.stages[next];
    const Matrix* matrix = matrix_of(view.model, entry);
    if (matrix == nullptr) continue;
    const int blocks = entry.kind == StageKind::gate_up ? 4 : 1;
    const Range& range = view.program.range(next, thread);
    const size_t block_bytes = matrix->strips * strip_bytes(matrix->format);
    return {matrix->data + range.low * blocks * block_bytes, (range.high - range.low) * blocks * block_bytes};
  }
  return {nullptr, 0};
}

}  // namespace samovar
