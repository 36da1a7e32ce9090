// Runs mono steps: checks, sizes, the walk of every thread through the stages.
#include "mono.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <stdexcept>

#include "chunks.h"
#include "parallel.h"
#include "step.h"

namespace samovar {
namespace {

// What a waiting thread reads ahead of the weights it needs next: as much as comes from memory in a few microseconds.
constexpr size_t kPrefetchBytes = 32 << 10;
constexpr size_t kPrefetchAtOnce = 4 * kCacheLine;

[[noreturn]] void refuse(const std::string& what, int64_t value, const std::string& limit) {
  throw std::invalid_argument(what + " is " + std::to_string(value) + "; it must be " + limit);
}
void require(bool holds, const std::string& what, int64_t value, const std::string& limit) {
  if (!holds) refuse(what, value, limit);
}
std::string of_row(const std::string& what, int row) { return what + " of row " + std::to_string(row); }
std::string below(int limit) { return "0 to " + std::to_string(limit - 1); }

void check_matrix(const Matrix& matrix, const std::string& name, int n, int k) {
  require(matrix.n == n, name + ".n", matrix.n, std::to_string(n));
  require(matrix.k == k, name + ".k", matrix.k, std::to_string(k));
  require(matrix.data != nullptr, name + ".data", 0, "memory");
}

void check_layer(const MonoModel& model, const MonoLayer& layer, const std::string& name) {
  check_matrix(layer.qkv, name + "qkv", model.qkv_columns(), model.hidden);
  check_matrix(layer.attention_out, name + "attention_out", model.hidden, model.q_columns());
  check_matrix(layer.gate_up, name + "gate_up", 2 * model.intermediate, model.hidden);
  check_matrix(layer.down, name + "down", model.hidden, model.intermediate);
  require(layer.kv.kv_heads == model.kv_heads, name + "kv.kv_heads", layer.kv.kv_heads, std::to_string(model.kv_heads));
  require(layer.kv.head_dim == model.head_dim, name + "kv.head_dim", layer.kv.head_dim, std::to_string(model.head_dim));
  require(layer.kv.block_tokens > 0 && layer.kv.block_tokens % kTileTokens == 0, name + "kv.block_tokens",
          layer.kv.block_tokens, "a multiple of 16");
}

const MonoModel& checked(const MonoModel& model) {
  require(!model.layers.empty() && model.layers.size() < 32768, "layers", model.layers.size(), "1 to 32767");
  require(model.kv_heads > 0, "kv_heads", model.kv_heads, "positive");
  require(model.heads > 0 && model.heads % model.kv_heads == 0, "heads", model.heads, "a multiple of kv_heads");
  require(model.group() <= kMaxAttendRows, "heads per KV head", model.group(), "at most 64");
  require(model.head_dim > 0 && model.head_dim % 32 == 0 && model.head_dim <= kMaxHeadDim, "head_dim", model.head_dim,
          "a multiple of 32, at most 256");
  require(model.intermediate > 0 && model.intermediate % 32 == 0, "intermediate", model.intermediate,
          "a multiple of 32");
  check_matrix(model.embed, "embed", model.vocab, model.hidden);
  check_matrix(model.lm_head, "lm_head", model.vocab, model.hidden);
  for (size_t layer = 0; layer < model.layers.size(); layer++) {
    check_layer(model, model.layers[layer], "layer " + std::to_string(layer) + " ");
  }
  return model;
}

ProgramShape shape_of(const MonoModel& model) {
  const MonoLayer& layer = model.layers.front();
  return {static_cast<int32_t>(model.layers.size()), layer.qkv.blocks,     layer.attention_out.blocks,
          model.intermediate / 32,                   layer.down.blocks, model.lm_head.blocks, model.kv_heads};
}

}  // namespace

struct MonoDecoder::State {
  State(Pool& pool, const Kernels& kernels, const MonoModel& model, double watchdog_s)
      : pool(pool), kernels(kernels), model(checked(model)), shape(shape_of(model)),
        watchdog(std::chrono::duration_cast<Sleepers::Clock::duration>(std::chrono::duration<double>(watchdog_s))),
        progress(pool.threads()) {
    Carver measure(nullptr);
    buffers.carve(measure, this->model, kernels.bf16_inputs, pool.threads());
    Carver carver(memory.at_least(measure.used()));
    buffers.carve(carver, this->model, kernels.bf16_inputs, pool.threads());
  }

  void check(const MonoStep& step) const {
    if (step.rows < 1 || step.rows > kMaxRows) refuse("rows", step.rows, "1 to " + std::to_string(kMaxRows));
    for (int row = 0; row < step.rows; row++) {
      const int64_t id = step.token_ids[row], position = step.positions[row];
      if (id < 0 || id >= model.vocab) refuse(of_row("token id", row), id, below(model.vocab));
      if (position < 0 || position >= model.max_positions) {
        refuse(of_row("position", row), position, below(model.max_positions));
      }
      if (step.slots[row] < 0) refuse(of_row("slot", row), step.slots[row], "0 or more");
    }
  }

  // The table for this step, with the attention tasks and the room for their results.
  const Program& plan(const MonoStep& step) {
    check(step);
    attend.build(step.positions, step.rows, model.kv_heads, pool.threads());
    Carver measure(nullptr);
    buffers.carve_results(measure, model, attend.tasks.size());
    Carver carver(results.at_least(measure.used()));
    buffers.carve_results(carver, model, attend.tasks.size());
    // One thread has nobody to share the merging with.
    const bool merge_stage = pool.threads() > 1 && attend.total_chunks > kOwnMergeChunks;
    const auto key = std::make_pair(step.rows, merge_stage);
    auto found = programs.find(key);
    if (found == programs.end()) {
      found = programs.emplace(key, build_program(shape, step.rows, pool.threads(), merge_stage)).first;
    }
    planned = &found->second;
    return found->second;
  }

  void walk(const StepView& view, int from, int to, uint64_t before, int thread) {
    for (int stage = from; stage < to; stage++) {
      run_stage(view, stage, thread);
      const uint64_t number = before + static_cast<uint64_t>(stage - from) + 1;
      progress.arrive(thread, number);
      if (stage + 1 == to) return;
      const Span weights = weights_after(view, stage, thread);
      const size_t ahead = std::min(weights.bytes, kPrefetchBytes);
      size_t fetched = 0;
      const bool goes_on = progress.wait(number, watchdog, [&] {
        if (fetched >= ahead) return false;
        for (size_t end = std::min(ahead, fetched + kPrefetchAtOnce); fetched < end; fetched += kCacheLine) {
          __builtin_prefetch(weights.data + fetched, 0, 2);
        }
        return true;
      });
      if (!goes_on) return;
    }
  }

  StepResult run(const Program& program, const MonoStep& step, int from, int to) {
    const StepView view{model, kernels, program, attend, step, buffers};
    const uint64_t before = progress.begin(to - from);
    on_every_thread(pool, [&](int thread, int) { walk(view, from, to, before, thread); });
    return progress.result();
  }

  Pool& pool;
  const Kernels& kernels;
  const MonoModel model;
  const ProgramShape shape;
  const Sleepers::Clock::duration watchdog;
  Progress progress;
  std::mutex one_caller;
  std::map<std::pair<int, bool>, Program> programs;  // by (rows, merge_stage)
  const Program* planned = nullptr;                  // of the last step
  AttendPlan attend;
  MonoBuffers buffers;
  Workspace memory;
  Workspace results;
};

MonoDecoder::MonoDecoder(Pool& pool, const Kernels& kernels, const MonoModel& model, double watchdog_s)
    : state_(new State(pool, kernels, model, watchdog_s)) {}
MonoDecoder::~MonoDecoder() = default;

StepResult MonoDecoder::step(const MonoStep& step) {
  std::lock_guard<std::mutex> lock(state_->one_caller);
  const Program& program = state_->plan(step);
  return state_->run(program, step, 0, static_cast<int>(program.stages.size()));
}

const Program& MonoDecoder::program(const MonoStep& step) {
  std::lock_guard<std::mutex> lock(state_->one_caller);
  return state_->plan(step);
}

StepResult MonoDecoder::run_stages(const MonoStep& step, int from, int to) {
  std::lock_guard<std::mutex> lock(state_->one_caller);
  const Program& program = state_->plan(step);
  const int stages = static_cast<int>(program.stages.size());
  require(from >= 0 && from <= to, "from", from, "0 to " + std::to_string(to));
  require(to <= stages, "to", to, "at most " + std::to_string(stages));
  return from == to ? StepResult::done : state_->run(program, step, from, to);
}

MonoBuffer MonoDecoder::buffer(const std::string& name) const {
  const MonoBuffers& buffers = state_->buffers;
  const MonoModel& model = state_->model;
  if (name == "x") return {buffers.x, model.hidden};
  if (name == "qkv") return {buffers.qkv, model.qkv_columns()};
  if (name == "attention") {
    const Program* program = state_->planned;
    const bool own = program != nullptr && program->own_inputs && !program->merge_stage && program->threads > 1;
    return {own ? buffers.own[0].attention : buffers.shared.attention, model.q_columns()};
  }
  if (name == "hidden") return {buffers.hidden, model.intermediate};
  throw std::invalid_argument("no buffer '" + name + "'; there are x, qkv, attention, hidden");
}

void MonoDecoder::abort() { state_->progress.end(StepResult::aborted); }

}  // namespace samovar
