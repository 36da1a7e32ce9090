// The mono path against the normal path, bit by bit: over models, formats, rows, contexts and threads, whole and after
// every stage; the normal path's attention split over contexts or over queries; steps that are ended early.
//   test_mono                 the tests
//   test_mono stress N        N steps that alternate with prefill attention
//   test_mono time [FORMAT]   one step of a model of SmolLM2-135M's shape
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "check.h"
#include "mono_runs.h"
#include "plain_kernels.h"
#include "small_model.h"

using namespace samovar;
using namespace samovar::test;

namespace {

bool same_bits(const float* a, const float* b, size_t count) { return std::memcmp(a, b, count * sizeof(float)) == 0; }

std::vector<int> random_contexts(Random& random, int rows, int most) {
  std::vector<int> contexts;
  for (int row = 0; row < rows; row++) contexts.push_back(static_cast<int>(random() % most));
  return contexts;
}

void check_same(const DecodeState& normal, const DecodeState& mono, const char* what) {
  CHECK(same_bits(normal.logits.data(), mono.logits.data(), mono.logits.size()), "logits differ: %s", what);
  CHECK(normal.argmax == mono.argmax, "tokens differ: %s", what);
  CHECK(normal.finite == mono.finite, "finite differs: %s", what);
  CHECK(normal.same_memory(mono), "KV differs: %s", what);
}

void check_steps(const Kernels& kernels, const SmallModel& small, const std::vector<int>& contexts, int threads,
                 const char* what) {
  Pool pool(threads), one(1);
  DecodeState normal(small, contexts, 5);
  DecodeState mono(normal);
  MonoDecoder decoder(pool, kernels, mono.model);
  NormalBuffers buffers;
  for (int step = 0; step < 3; step++) {
    normal_step(step % 2 == 0 ? one : pool, kernels, normal, buffers);
    const StepResult result = decoder.step(mono.step());
    CHECK(result == StepResult::done, "%s", what);
    check_same(normal, mono, what);
    for (uint8_t finite : mono.finite) CHECK(finite == 1, "%s", what);
    normal.advance();
    mono.advance();
  }
}

void test_same_bits(const Kernels& kernels, const std::vector<Format>& formats) {
  Random random(7);
  int shape = 0;
  for (Format format : formats) {
    for (int threads : {1, 2, 3, 5}) {
      for (int rows : {1, 2, 3, 8, 17, 64}) {
        Sizes sizes;
        sizes.format = format;
        sizes.biases = shape % 2 == 0;
        sizes.qk_norm = shape % 3 == 0;
        sizes.block_tokens = 16 << (shape % 3);
        if (shape % 4 == 1) sizes.heads = sizes.kv_heads = 3;
        if (shape % 4 == 2) sizes.heads = 4, sizes.kv_heads = 1, sizes.head_dim = 64;
        shape++;
        SmallModel small(sizes, 11 + shape);
        // A few rows may stand deep, so that merging becomes a stage; many stand shallow, for the time it takes.
        const int most = rows <= 3 ? 1000 : rows <= 8 ? 600 : 40;
        char what[160];
        std::snprintf(what, sizeof what, "%s, format %d, %d threads, %d rows, biases %d, qk_norm %d, %d/%d heads of %d",
                      kernels.name, static_cast<int>(format), threads, rows, sizes.biases, sizes.qk_norm, sizes.heads,
                      sizes.kv_heads, sizes.head_dim);
        check_steps(kernels, small, random_contexts(random, rows, most), threads, what);
      }
    }
  }
}

void test_chunk_borders(const Kernels& kernels) {
  SmallModel small({}, 3);
  for (int context : {0, 1, 15, 16, 254, 255, 256, 257, 511, 512, 1000}) {
    char what[40];
    std::snprintf(what, sizeof what, "context %d", context);
    check_steps(kernels, small, {context}, 2, what);
  }
}

const std::vector<float>& named(const NormalBuffers& buffers, const char* name) {
  return std::strcmp(name, "x") == 0 ? buffers.x : std::strcmp(name, "qkv") == 0 ? buffers.qkv
         : std::strcmp(name, "attention") == 0 ? buffers.attention : buffers.hidden;
}

std::vector<const char*> written_by(StageKind kind) {
  switch (kind) {
    case StageKind::embed: return {"x"};
    case StageKind::qkv: return {"qkv"};
    case StageKind::attention_out: return {"attention", "x"};
    case StageKind::gate_up: return {"hidden"};
    case StageKind::down: return {"x"};
    default: return {};
  }
}

void test_after_every_stage(const Kernels& kernels) {
  Sizes sizes;
  sizes.biases = sizes.qk_norm = true;
  SmallModel small(sizes, 17);
  for (int threads : {1, 3}) {
    for (const std::vector<int>& contexts : {std::vector<int>{300}, {900, 950}, {3, 600, 20, 1, 700}}) {
      Pool pool(threads), one(1);
      DecodeState normal(small, contexts, 23);
      DecodeState mono(normal);
      MonoDecoder decoder(pool, kernels, mono.model);
      const MonoStep step = mono.step();
      const std::vector<Stage> stages = decoder.program(step).stages;
      int at = 0, compared = 0;
      NormalBuffers buffers;
      normal_step(one, kernels, normal, buffers, [&](StageKind kind, int layer) {
        int next = at;
        while (stages[next].kind != kind || stages[next].layer != layer) next++;
        CHECK(decoder.run_stages(step, at, next + 1) == StepResult::done);
        at = next + 1;
        for (const char* name : written_by(kind)) {
          const std::vector<float>& expected = named(buffers, name);
          const MonoBuffer got = decoder.buffer(name);
          CHECK(got.columns * contexts.size() == expected.size(), "%s", name);
          CHECK(same_bits(got.data, expected.data(), expected.size()), "%s after %s of layer %d, %zu rows, %d threads",
                name, stage_name(kind), layer, contexts.size(), threads);
          compared++;
        }
      });
      CHECK(at == static_cast<int>(stages.size()) && compared == 1 + 5 * sizes.layers);
      check_same(normal, mono, "stage by stage");
    }
  }
}

// A prompt's queries alone, in chunks or all at once, with decode rows beside them.
void test_attention_splits(const Kernels& kernels) {
  Random random(31);
  Sizes sizes;
  sizes.heads = 9;
  sizes.kv_heads = 3;
  SmallModel small(sizes, 29);
  const int tokens = 700, columns = sizes.heads * sizes.head_dim;
  DecodeState state(small, {tokens, 333}, 37);
  const KVPool& kv = state.model.layers[0].kv;
  const std::vector<float> q = random_floats(random, static_cast<size_t>(tokens + 1) * columns, 2);
  const auto attend = [&](int threads, const std::vector<AttentionRow>& rows) {
    Pool pool(threads);
    Workspace workspace;
    std::vector<float> out(q.size(), -1);
    attention(pool, kernels, kv, q.data(), columns, rows.data(), static_cast<int>(rows.size()), sizes.heads, 0.2f,
              out.data(), columns, workspace);
    return out;
  };
  std::vector<AttentionRow> alone, chunked;
  for (int token = 0; token < tokens; token++) alone.push_back({token, 1, token, state.tables[0].data()});
  for (int token = 0; token < tokens;) {
    const int count = std::min(tokens - token, 1 + static_cast<int>(random() % 90));
    chunked.push_back({token, count, token, state.tables[0].data()});
    token += count;
  }
  std::vector<AttentionRow> whole{{0, tokens, 0, state.tables[0].data()}};
  for (std::vector<AttentionRow>* rows : {&alone, &chunked, &whole}) {
    rows->push_back({tokens, 1, 333, state.tables[1].data()});
  }
  const std::vector<float> expected = attend(1, alone);
  for (int threads : {1, 2, 3}) {
    for (const std::vector<AttentionRow>* rows : {&alone, &chunked, &whole}) {
      CHECK(same_bits(expected.data(), attend(threads, *rows).data(), expected.size()), "%zu rows, %d threads",
            rows->size(), threads);
    }
  }
}

void test_linear_of_many_rows(const Kernels& kernels) {
  Random random(41);
  Sizes sizes;
  SmallModel small(sizes, 43);
  const MonoLayer& layer = small.model.layers[0];
  const int rows = 300;
  const std::vector<float> x = random_floats(random, static_cast<size_t>(rows) * sizes.hidden, 1);
  std::vector<std::vector<float>> outs, hiddens;
  for (int threads : {1, 2, 3}) {
    Pool pool(threads);
    Workspace workspace;
    outs.emplace_back(static_cast<size_t>(rows) * layer.qkv.n, 0.5f);
    hiddens.emplace_back(static_cast<size_t>(rows) * sizes.intermediate);
    linear(pool, kernels, layer.qkv, x.data(), rows, sizes.hidden, nullptr, true, outs.back().data(), layer.qkv.n,
           workspace);
    linear_swiglu(pool, kernels, layer.gate_up, x.data(), rows, sizes.hidden, nullptr, hiddens.back().data(),
                  sizes.intermediate, workspace);
    // Row by row is the same again.
    for (int row = 0; row < rows; row += 37) {
      std::vector<float> one(layer.qkv.n, 0.5f);
      linear(pool, kernels, layer.qkv, x.data() + row * sizes.hidden, 1, sizes.hidden, nullptr, true, one.data(),
             layer.qkv.n, workspace);
      const float* together = outs.back().data() + static_cast<size_t>(row) * layer.qkv.n;
      CHECK(same_bits(one.data(), together, one.size()), "row %d", row);
    }
    CHECK(outs.front() == outs.back() && hiddens.front() == hiddens.back(), "%d threads", threads);
  }
}

// A step that one thread holds up: `slow_s` seconds, once, in a linear_swiglu of any thread but the first to come.
std::atomic<int> calls_to_go{-1};
std::atomic<double> slow_s{0};

void slow_swiglu(const Matrix& matrix, const Activations& act, int row0, int rows, int group0, int groups,
                 const float* bias, float* out, size_t out_ld) {
  if (calls_to_go.fetch_sub(1) == 0) std::this_thread::sleep_for(std::chrono::duration<double>(slow_s.load()));
  plain::linear_swiglu(matrix, act, row0, rows, group0, groups, bias, out, out_ld);
}

void test_ended_early() {
  Kernels slow = plain::table();
  slow.linear_swiglu = slow_swiglu;
  const Kernels plain_table = plain::table();
  SmallModel small({}, 47);
  Pool pool(3), one(1);
  NormalBuffers buffers;
  DecodeState normal(small, {20, 300, 7}, 53);
  DecodeState mono(normal);
  MonoDecoder decoder(pool, slow, mono.model, 0.5);

  slow_s = 1;
  calls_to_go = 1;
  CHECK(decoder.step(mono.step()) == StepResult::timed_out, "a thread slept for longer than the watchdog allows");

  slow_s = 0.2;
  calls_to_go = 1;
  std::thread other([&] {
    while (calls_to_go.load() >= 0) std::this_thread::yield();
    decoder.abort();
  });
  CHECK(decoder.step(mono.step()) == StepResult::aborted);
  other.join();
  CHECK(calls_to_go >= 1 - pool.threads(), "no thread goes on to the second layer: %d", calls_to_go.load());

  normal_step(one, plain_table, normal, buffers);
  CHECK(decoder.step(mono.step()) == StepResult::done, "usable after both");
  check_same(normal, mono, "after steps that ended early");
}

template <class Action>
void check_refused(Action action, const char* expected) {
  try {
    action();
  } catch (const std::invalid_argument& error) {
    CHECK(std::strstr(error.what(), expected) != nullptr, "'%s' does not say '%s'", error.what(), expected);
    return;
  }
  CHECK(false, "not refused: %s", expected);
}

void test_refused() {
  const Kernels kernels = plain::table();
  Pool pool(1);
  SmallModel small({}, 59);
  DecodeState state(small, {5, 6}, 61);
  MonoDecoder decoder(pool, kernels, state.model);
  const auto with = [&](auto change) {
    DecodeState changed(state);
    change(changed);
    decoder.step(changed.step());
  };
  check_refused([&] { with([](DecodeState& s) { s.rows = 0; }); }, "rows is 0; it must be 1 to 64");
  check_refused([&] { with([](DecodeState& s) { s.token_ids[1] = 203; }); },
                "token id of row 1 is 203; it must be 0 to 202");
  check_refused([&] { with([](DecodeState& s) { s.positions[0] = 1024; }); }, "position of row 0 is 1024");
  check_refused([&] { with([](DecodeState& s) { s.slots[0] = -1; }); }, "slot of row 0 is -1");
  check_refused([&] { decoder.run_stages(state.step(), 0, 99); }, "to is 99");
  check_refused([&] { decoder.buffer("y"); }, "no buffer 'y'");
  MonoModel wrong = state.model;
  wrong.intermediate = 150;
  check_refused([&] { MonoDecoder(pool, kernels, wrong); }, "intermediate is 150");
  wrong = state.model;
  wrong.layers[1].down.k = 99;
  check_refused([&] { MonoDecoder(pool, kernels, wrong); }, "layer 1 down.k is 99; it must be 160");
}

void test_not_finite() {
  const Kernels kernels = plain::table();
  SmallModel small({}, 67);
  for (int threads : {1, 3}) {
    Pool pool(threads);
    DecodeState state(small, {5, 6}, 71);
    std::vector<float> norm(small.sizes.hidden, 1);
    state.model.norm = norm.data();
    norm[3] = std::numeric_limits<float>::infinity();
    MonoDecoder decoder(pool, kernels, state.model);
    CHECK(decoder.step(state.step()) == StepResult::done);
    for (uint8_t finite : state.finite) CHECK(finite == 0);
  }
}

void test_attend_plan() {
  Random random(73);
  for (int trial = 0; trial < 300; trial++) {
    const int rows = 1 + random() % 64, kv_heads = 1 + random() % 8, threads = 1 + random() % 9;
    std::vector<int32_t> positions;
    for (int row = 0; row < rows; row++) positions.push_back(random() % 3000);
    AttendPlan plan;
    plan.build(positions.data(), rows, kv_heads, threads);
    int at = 0;
    for (const Range& range : plan.ranges) {
      CHECK(range.low == at && range.high >= range.low, "gap at %d", at);
      at = range.high;
    }
    CHECK(at == static_cast<int>(plan.tasks.size()) && static_cast<int>(plan.ranges.size()) == threads);
    CHECK(at == plan.total_chunks * kv_heads);
    for (int row = 0; row < rows; row++) CHECK(plan.tasks[plan.first[row]].row == row);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2 && std::strcmp(argv[1], "stress") == 0) {
    stress(std::atoi(argv[2]));
    return 0;
  }
  if (argc > 1 && std::strcmp(argv[1], "time") == 0) {
    const char* format = argc > 2 ? argv[2] : "bf16";
    const Kernels* kernels = argc > 3 ? kernels_named(argv[3]) : kernels_available()[0];
    CHECK(kernels != nullptr, "no such kernels here");
    time_model(*kernels, std::strcmp(format, "q4_1") == 0 ? Format::q4_1
                         : std::strcmp(format, "q8") == 0 ? Format::q8 : Format::bf16);
    return 0;
  }
  const Kernels plain_table = plain::table();
  test_attend_plan();
  test_refused();
  test_not_finite();
  test_ended_early();
  test_chunk_borders(plain_table);
  test_same_bits(plain_table, {Format::f32});
  test_after_every_stage(plain_table);
  test_attention_splits(plain_table);
  test_linear_of_many_rows(plain_table);
  for (const Kernels* const* table = kernels_available(); *table != nullptr; table++) {
    const Kernels& kernels = **table;
    test_chunk_borders(kernels);
    test_same_bits(kernels, {Format::f32, Format::bf16, Format::q8, Format::q4_1});
    test_after_every_stage(kernels);
    test_attention_splits(kernels);
    test_linear_of_many_rows(kernels);
    std::printf("mono with %s: ok\n", kernels.name);
  }
  std::puts("mono: ok");
}
