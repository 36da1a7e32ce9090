// One thread's part of one stage of a mono step, and the buffers the stages pass to each other.
#pragma once

#include <vector>

#include "kernels.h"
#include "mono.h"
#include "program.h"
#include "workspace.h"

namespace samovar {

// The input of a linear on its way: normed or merged rows, then rounded.
struct InputBuffers {
  float* normed;     // [rows][hidden]
  float* attention;  // [rows][heads * head_dim]
  Activations act;
};

struct HeadScratch {
  float* q;  // [group][head_dim]
  float* k;  // [head_dim]
};

struct Maximum {
  float value;
  int32_t index;
  bool finite;
};

struct MonoBuffers {
  float* x;       // [kMaxRows][hidden]
  float* qkv;     // [kMaxRows][qkv_columns]
  float* hidden;  // [kMaxRows][intermediate]
  InputBuffers shared;            // kMaxRows rows
  std::vector<InputBuffers> own;  // [thread], kOwnInputRows rows; empty for one thread, which owns `shared`
  std::vector<HeadScratch> scratch;  // [thread]
  Maximum* maxima;                // [thread][kMaxRows]
  Partial* partial;               // [task][group]
  float* values;                  // [task][group][head_dim]

  // bf16_inputs: of the kernels.
  void carve(Carver& carver, const MonoModel& model, bool bf16_inputs, int threads);
  void carve_results(Carver& carver, const MonoModel& model, size_t tasks);
};

struct StepView {
  const MonoModel& model;
  const Kernels& kernels;
  const Program& program;
  const AttendPlan& attend;
  const MonoStep& step;
  const MonoBuffers& buffers;
};

void run_stage(const StepView& view, int stage, int thread);

struct Span {
  const uint8_t* data;
  size_t bytes;
};
// The weights that this thread reads first after `stage`: those of the next stage, or of the one after it when that has
// none.
Span weights_after(const StepView& view, int stage, int thread);

}  // namespace samovar
