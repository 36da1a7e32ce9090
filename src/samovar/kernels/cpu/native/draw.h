// From a row of logits to a token: temperature, min_p, top_k, top_p, and a draw with a given number. The rules are those
// of runner/filters.py, which is the reference; weights are f32 here, sums of them double.
#pragma once

#include "kernels.h"
#include "pool.h"
#include "workspace.h"

namespace samovar {

struct DrawRule {
  float temperature;  // > 0
  float min_p;        // 0: off
  int32_t top_k;      // 0: off
  double top_p;       // 1: off
  double u;           // [0, 1)
};

// token[i] for the logits x [n] of row rows[i], all of them finite or -inf, at least one finite. Ties with the last
// token that top_k or top_p keeps are kept too. A row's token depends on that row alone.
void draw(Pool& pool, const Kernels& kernels, const float* x, size_t ld, int n, const int32_t* rows,
          const DrawRule* rules, int count, int32_t* token, Workspace& workspace);

}  // namespace samovar
