// Builds the tables of a decode step.
#include "program.h"

#include "chunks.h"

namespace samovar {
namespace {

// What a task costs beside reading its tokens, in tokens.
constexpr int64_t kTaskCost = 16;

class Builder {
 public:
  Builder(const ProgramShape& shape, Program& program) : shape_(shape), program_(program) {}

  void build() {
    add(StageKind::embed, -1, program_.rows);
    for (int layer = 0; layer < shape_.layers; layer++) {
      add_input(StageKind::qkv_input, layer);
      add(StageKind::qkv, layer, shape_.qkv_blocks);
      add(StageKind::attend, layer, 0);
      // With own inputs the rounding follows in each thread, so the merge is split finer than by rows.
      if (program_.merge_stage) {
        add(StageKind::merge, layer, program_.own_inputs ? program_.rows * shape_.kv_heads : program_.rows);
      }
      add(StageKind::attention_out, layer, shape_.attention_out_blocks);
      add_input(StageKind::gate_up_input, layer);
      add(StageKind::gate_up, layer, shape_.gate_up_groups);
      add_input(StageKind::down_input, layer);
      add(StageKind::down, layer, shape_.down_blocks);
    }
    add_input(StageKind::head_input, -1);
    add(StageKind::head, -1, shape_.head_blocks);
    add(StageKind::argmax, -1, 0);
  }

 private:
  void add_input(StageKind kind, int layer) {
    if (!program_.own_inputs) add(kind, layer, program_.rows);
  }

  void add(StageKind kind, int layer, int items) {
    program_.stages.push_back({kind, static_cast<int16_t>(layer)});
    for (int thread = 0; thread < program_.threads; thread++) {
      Range range;
      share(items, thread, program_.threads, &range.low, &range.high);
      program_.ranges.push_back(range);
    }
  }

  const ProgramShape& shape_;
  Program& program_;
};

}  // namespace

const char* stage_name(StageKind kind) {
  switch (kind) {
    case StageKind::embed: return "embed";
    case StageKind::qkv_input: return "qkv_input";
    case StageKind::qkv: return "qkv";
    case StageKind::attend: return "attend";
    case StageKind::merge: return "merge";
    case StageKind::attention_out: return "attention_out";
    case StageKind::gate_up_input: return "gate_up_input";
    case StageKind::gate_up: return "gate_up";
    case StageKind::down_input: return "down_input";
    case StageKind::down: return "down";
    case StageKind::head_input: return "head_input";
    case StageKind::head: return "head";
    case StageKind::argmax: return "argmax";
  }
  return "";
}

Program build_program(const ProgramShape& shape, int rows, int threads, bool merge_stage) {
  const bool own = own_inputs(rows, threads);
  Program program{rows, threads, own, merge_stage || !own, {}, {}};
  Builder(shape, program).build();
  return program;
}

void AttendPlan::build(const int32_t* positions, int rows, int kv_heads, int threads) {
  tasks.clear();
  first.clear();
  total_chunks = 0;
  int64_t total_cost = 0;
  for (int row = 0; row < rows; row++) {
    const int visible = positions[row] + 1, chunks = chunks_of(visible);
    first.push_back(static_cast<int32_t>(tasks.size()));
    total_chunks += chunks;
    total_cost += kv_heads * (visible + chunks * kTaskCost);
    for (int kv_head = 0; kv_head < kv_heads; kv_head++) {
      for (int chunk = 0; chunk < chunks; chunk++) tasks.push_back({row, kv_head, chunk, chunk == chunks - 1});
    }
  }
  // A task belongs to the thread in whose share of the cost its middle lies.
  ranges.assign(threads, {0, 0});
  int64_t before = 0;
  int thread = 0;
  for (size_t index = 0; index < tasks.size(); index++) {
    const AttendTask& task = tasks[index];
    const int64_t tokens = task.last ? positions[task.row] + 1 - task.chunk * kChunkTokens : kChunkTokens;
    const int64_t cost = tokens + kTaskCost;
    while (thread < threads - 1 && (2 * before + cost) * threads >= 2 * total_cost * (thread + 1)) {
      thread++;
      ranges[thread] = {static_cast<int32_t>(index), static_cast<int32_t>(index)};
    }
    ranges[thread].high = static_cast<int32_t>(index) + 1;
    before += cost;
  }
  const int32_t end = static_cast<int32_t>(tasks.size());
  for (thread++; thread < threads; thread++) ranges[thread] = {end, end};
}

}  // namespace samovar
