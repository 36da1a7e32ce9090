// A decode step as a table: its stages in order, and for each stage the part that each thread does. Built once per
// (rows, threads); only the attention tasks depend on the step's contexts.
#pragma once

#include <cstdint>
#include <vector>

#include "pool.h"

namespace samovar {

// In the order of a step. A stage reads what earlier ones wrote; no two threads write the same place in one stage.
enum class StageKind : uint8_t {
  embed,          // rows -> x
  qkv_input,      // rows: norm, rounding
  qkv,            // column blocks -> qkv
  attend,         // (row, KV head, chunk): rotates its queries; the last chunk's task also writes the token's k and v
  merge,          // rows or (row, KV head): chunk results -> attention
  attention_out,  // column blocks: x += o_proj
  gate_up_input,  // rows
  gate_up,        // groups of 32 columns -> hidden
  down_input,     // rows
  down,           // column blocks: x += down_proj
  head_input,     // rows
  head,           // column blocks -> logits
  argmax,         // thread 0: joins the threads' own maxima
};
const char* stage_name(StageKind kind);

struct Stage {
  StageKind kind;
  int16_t layer;  // -1 outside the layers
};

struct Range {
  int32_t low, high;
};

// Work items per stage kind of one model.
struct ProgramShape {
  int32_t layers;
  int32_t qkv_blocks;
  int32_t attention_out_blocks;
  int32_t gate_up_groups;
  int32_t down_blocks;
  int32_t head_blocks;
  int32_t kv_heads;
};

// How the work before a linear (norm, rounding, merging chunks) is done. With one thread, or a row or two, every thread
// does all of it into buffers of its own: that takes about as long as meeting the others once more. With more rows it
// is a stage of its own, split over the rows.
constexpr int kOwnInputRows = 2;
inline bool own_inputs(int rows, int threads) { return threads == 1 || rows <= kOwnInputRows; }
// With own inputs, a context of more chunks than this (of all rows) is still merged in a stage of its own.
constexpr int kOwnMergeChunks = 8;

struct Program {
  int rows;
  int threads;
  bool own_inputs;
  bool merge_stage;
  std::vector<Stage> stages;
  std::vector<Range> ranges;  // [stage][thread]; empty ranges for `attend`

  const Range& range(int stage, int thread) const { return ranges[static_cast<size_t>(stage) * threads + thread]; }
};
Program build_program(const ProgramShape& shape, int rows, int threads, bool merge_stage);

// One chunk of a row's context for one KV head.
struct AttendTask {
  int32_t row;
  int32_t kv_head;
  int32_t chunk;
  bool last;  // of its row and head
};

// The attention tasks of a step, in order of row, KV head, chunk; each thread has a stretch of about equal cost.
struct AttendPlan {
  std::vector<AttendTask> tasks;
  std::vector<Range> ranges;      // [thread]
  std::vector<int32_t> first;     // [row]: index of its first task
  int total_chunks;               // of all rows, for one KV head

  void build(const int32_t* positions, int rows, int kv_heads, int threads);
};

}  // namespace samovar
