// Long runs of the mono path: many steps among prefill, and the time of a step.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "check.h"
#include "plain_kernels.h"
#include "small_model.h"

namespace samovar::test {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

inline void stress(int steps) {
  const Kernels plain_table = plain::table();
  const Kernels& kernels = kernels_available()[0] != nullptr ? *kernels_available()[0] : plain_table;
  Sizes sizes;
  sizes.format = Format::bf16;
  SmallModel small(sizes, 79);
  Pool pool(2), one(1);
  const std::vector<int> contexts{40, 300};
  DecodeState expected(small, contexts, 83);
  NormalBuffers buffers;
  std::vector<std::vector<int32_t>> tokens;
  const DecodeState begin(expected);
  for (int step = 0; step < 8; step++) {
    normal_step(one, kernels, expected, buffers);
    tokens.push_back(expected.argmax);
    expected.advance();
  }
  DecodeState mono(begin);
  MonoDecoder decoder(pool, kernels, mono.model);
  DecodeState prefill(begin);
  std::vector<double> ms;
  for (int step = 0; step < steps; step++) {
    if (step % 8 == 0 && step > 0) {
      mono.token_ids = begin.token_ids;
      for (int row = 0; row < mono.rows; row++) mono.positions[row] = contexts[row] - 1;
      mono.argmax = begin.token_ids;
      mono.advance();
    }
    const Clock::time_point before = Clock::now();
    const StepResult result = decoder.step(mono.step());
    ms.push_back(1e3 * seconds_since(before));
    CHECK(result == StepResult::done, "step %d", step);
    CHECK(mono.argmax == tokens[step % 8], "tokens of step %d", step);
    mono.advance();
    if (step % 4 == 3) normal_step(pool, kernels, prefill, buffers);
  }
  std::sort(ms.begin(), ms.end());
  std::printf("%d steps: median %.3f ms, p99 %.3f, max %.3f\n", steps, ms[steps / 2], ms[steps * 99 / 100], ms.back());
}

inline void time_model(const Kernels& kernels, Format format) {
  Sizes sizes;
  sizes.layers = 30, sizes.hidden = 576, sizes.heads = 9, sizes.kv_heads = 3, sizes.head_dim = 64;
  sizes.intermediate = 1536, sizes.vocab = 49152, sizes.max_positions = 8192, sizes.format = format;
  SmallModel small(sizes, 1);
  double bytes = static_cast<double>(packed_bytes(format, sizes.vocab, sizes.hidden));
  for (const MonoLayer& layer : small.model.layers) {
    for (const Matrix* m : {&layer.qkv, &layer.attention_out, &layer.gate_up, &layer.down}) {
      bytes += static_cast<double>(packed_bytes(format, m->n, m->k));
    }
  }
  std::printf("%s, format %d, %.0f MB of weights\n", kernels.name, static_cast<int>(format), bytes / 1e6);
  for (int threads : {1, 2}) {
    Pool pool(threads);
    for (int rows : {1, 2, 3, 4, 8, 16, 64}) {
      for (int context : {100, 4096}) {
        if (rows > 8 && context > 100) continue;
        DecodeState state(small, std::vector<int>(rows, context), 1);
        MonoDecoder decoder(pool, kernels, state.model);
        double best = 1e9, worst = 0, sum = 0;
        const int trials = 20;
        for (int trial = -2; trial < trials; trial++) {
          const Clock::time_point begin = Clock::now();
          CHECK(decoder.step(state.step()) == StepResult::done);
          const double ms = 1e3 * seconds_since(begin);
          if (trial < 0) continue;
          best = std::min(best, ms), worst = std::max(worst, ms), sum += ms;
        }
        std::printf("  %d threads, %2d rows, context %4d: best %.2f ms, mean %.2f, worst %.2f; weights %.1f GB/s\n",
                    threads, rows, context, best, sum / trials, worst, bytes / best / 1e6);
      }
    }
  }
}

}  // namespace samovar::test
