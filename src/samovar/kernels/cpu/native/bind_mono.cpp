// Mono decode for Python: a model described once, then one call per step.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <vector>

#include "bind.h"
#include "mono.h"

namespace samovar {
namespace {

// A decoder and everything its pointers point into.
struct BoundDecoder {
  std::vector<nb::object> owners;
  MonoModel model;
  std::vector<size_t> pool_blocks;  // [layer]
  std::unique_ptr<MonoDecoder> decoder;
  std::mutex mutex;
};

// Reads a dict's entries by name, checks them and keeps them alive.
class Description {
 public:
  Description(nb::dict entries, std::vector<nb::object>& owners) : entries_(std::move(entries)), owners_(owners) {}

  Matrix matrix(const char* name, int n, int k) {
    const nb::object entry = take(name);
    const Matrix matrix = nb::cast<BoundMatrix&>(entry).matrix;
    require(matrix.n == n && matrix.k == k, (std::string(name) + ": shape does not fit the model").c_str());
    return matrix;
  }

  const float* vector(const char* name, size_t size, bool optional = false) {
    const nb::object entry = take(name);
    if (entry.is_none()) {
      require(optional, (std::string(name) + ": is missing").c_str());
      return nullptr;
    }
    const auto array = nb::cast<nb::ndarray<const float, nb::c_contig, nb::device::cpu>>(entry);
    require(array.size() == size, (std::string(name) + ": size does not fit the model").c_str());
    owners_.push_back(nb::cast(array));
    return array.data();
  }

  template <class T>
  T value(const char* name) {
    return nb::cast<T>(take(name));
  }

 private:
  nb::object take(const char* name) {
    require(entries_.contains(name), (std::string(name) + ": is missing").c_str());
    nb::object entry = entries_[name];
    owners_.push_back(entry);
    return entry;
  }

  nb::dict entries_;
  std::vector<nb::object>& owners_;
};

MonoLayer layer_of(const MonoModel& model, nb::dict entries, std::vector<nb::object>& owners, size_t* pool_blocks) {
  Description given(std::move(entries), owners);
  MonoLayer layer{};
  layer.input_norm = given.vector("input_norm", model.hidden);
  layer.qkv = given.matrix("qkv", model.qkv_columns(), model.hidden);
  layer.qkv_bias = given.vector("qkv_bias", model.qkv_columns(), true);
  layer.qk_norm = given.vector("qk_norm", static_cast<size_t>(model.heads + model.kv_heads) * model.head_dim, true);
  layer.attention_out = given.matrix("o", model.hidden, model.q_columns());
  layer.attention_out_bias = given.vector("o_bias", model.hidden, true);
  layer.post_norm = given.vector("post_norm", model.hidden);
  layer.gate_up = given.matrix("gate_up", 2 * model.intermediate, model.hidden);
  layer.gate_up_bias = given.vector("gate_up_bias", 2 * static_cast<size_t>(model.intermediate), true);
  layer.down = given.matrix("down", model.hidden, model.intermediate);
  layer.down_bias = given.vector("down_bias", model.hidden, true);
  const auto keys = given.value<KVArray>("keys");
  const auto values = given.value<KVArray>("values");
  layer.kv = kv_pool(keys, values);
  require(layer.kv.kv_heads == model.kv_heads && layer.kv.head_dim == model.head_dim, "keys: heads do not fit the model");
  *pool_blocks = keys.shape(0);
  return layer;
}

void init(BoundDecoder* self, Context& context, nb::dict entries, nb::list layers, double watchdog_s) {
  new (self) BoundDecoder();
  // Nothing owns a half-made object: what fails here must not leak what it held.
  try {
    Description given(std::move(entries), self->owners);
    MonoModel& model = self->model;
    model.hidden = given.value<int>("hidden");
    model.heads = given.value<int>("heads");
    model.kv_heads = given.value<int>("kv_heads");
    model.head_dim = given.value<int>("head_dim");
    model.intermediate = given.value<int>("intermediate");
    model.vocab = given.value<int>("vocab");
    model.max_positions = given.value<int>("max_positions");
    model.eps = given.value<float>("eps");
    model.attention_scale = given.value<float>("attention_scale");
    for (int number : {model.hidden, model.heads, model.kv_heads, model.head_dim, model.intermediate, model.vocab,
                       model.max_positions})
      require(number > 0, "model: every size must be positive");
    require(model.heads % model.kv_heads == 0, "heads: must be a multiple of kv_heads");
    const size_t angles = static_cast<size_t>(model.max_positions) * (model.head_dim / 2);
    model.cos = given.vector("cos", angles);
    model.sin = given.vector("sin", angles);
    model.embed = given.matrix("embed", model.vocab, model.hidden);
    model.norm = given.vector("norm", model.hidden);
    model.lm_head = given.matrix("lm_head", model.vocab, model.hidden);
    for (nb::handle layer : layers) {
      size_t blocks = 0;
      model.layers.push_back(layer_of(model, nb::cast<nb::dict>(layer), self->owners, &blocks));
      self->pool_blocks.push_back(blocks);
    }
    self->decoder = std::make_unique<MonoDecoder>(context.pool, *context.kernels, model, watchdog_s);
  } catch (...) {
    self->~BoundDecoder();
    throw;
  }
}

struct StepArrays {
  Rows<const int32_t, 1> token_ids, positions;
  Rows<const int64_t, 1> slots, tables;
  Rows<float, 2> logits;
};

// Checks everything a wrong number of which could read or write outside the model's memory.
MonoStep step_of(const BoundDecoder& self, const StepArrays& arrays) {
  const size_t rows = arrays.token_ids.size();
  require(rows >= 1 && rows <= kMaxRows, "token_ids: a step has 1 to 64 rows");
  require(arrays.positions.size() == rows && arrays.slots.size() == rows && arrays.tables.size() == rows,
          "positions, slots, tables: must have one entry per row");
  require(arrays.logits.shape(0) == rows && arrays.logits.shape(1) == static_cast<size_t>(self.model.vocab),
          "logits: must be [rows][vocab]");
  const int block_tokens = self.model.layers.empty() ? 1 : self.model.layers[0].kv.block_tokens;
  const int64_t blocks = self.pool_blocks.empty() ? 0 : static_cast<int64_t>(self.pool_blocks[0]);
  for (size_t i = 0; i < rows; i++) {
    require(arrays.token_ids(i) >= 0 && arrays.token_ids(i) < self.model.vocab, "token_ids: must lie in the vocabulary");
    require(arrays.positions(i) >= 0 && arrays.positions(i) < self.model.max_positions, "positions: out of range");
    require(arrays.slots(i) >= 0 && arrays.slots(i) < blocks * block_tokens, "slots: must lie in the pool");
    const auto* table = reinterpret_cast<const int64_t*>(arrays.tables(i));
    require(table != nullptr, "tables: must be addresses");
    for (int b = 0; b <= arrays.positions(i) / block_tokens; b++)
      require(table[b] >= 0 && table[b] < blocks, "tables: blocks must lie in the pool");
  }
  return MonoStep{static_cast<int32_t>(rows), arrays.token_ids.data(), arrays.positions.data(), arrays.slots.data(),
                  reinterpret_cast<const int64_t* const*>(arrays.tables.data()), arrays.logits.data(), nullptr, nullptr};
}

void finish(StepResult result) {
  switch (result) {
    case StepResult::done: return;
    case StepResult::aborted: throw std::runtime_error("the decode step was aborted");
    case StepResult::timed_out: throw std::runtime_error("the decode step's threads waited too long for each other");
  }
}

void step(BoundDecoder& self, const Rows<const int32_t, 1>& token_ids, const Rows<const int32_t, 1>& positions,
          const Rows<const int64_t, 1>& slots, const Rows<const int64_t, 1>& tables, const Rows<float, 2>& logits) {
  const MonoStep given = step_of(self, StepArrays{token_ids, positions, slots, tables, logits});
  nb::gil_scoped_release released;
  std::lock_guard<std::mutex> held(self.mutex);
  finish(self.decoder->step(given));
}

// Stages [from, to) of the step; the names of all of them come back, as (name, layer).
nb::list run_stages(BoundDecoder& self, const Rows<const int32_t, 1>& token_ids, const Rows<const int32_t, 1>& positions,
                    const Rows<const int64_t, 1>& slots, const Rows<const int64_t, 1>& tables,
                    const Rows<float, 2>& logits, int from, int to) {
  const MonoStep given = step_of(self, StepArrays{token_ids, positions, slots, tables, logits});
  const Program& program = self.decoder->program(given);
  require(0 <= from && from <= to && to <= static_cast<int>(program.stages.size()), "from, to: must be stages");
  nb::list names;
  for (const Stage& stage : program.stages) names.append(nb::make_tuple(stage_name(stage.kind), stage.layer));
  nb::gil_scoped_release released;
  std::lock_guard<std::mutex> held(self.mutex);
  finish(self.decoder->run_stages(given, from, to));
  return names;
}

// A copy of what `name` holds, [rows][columns].
nb::object buffer(const BoundDecoder& self, const std::string& name, int rows) {
  require(rows >= 1 && rows <= kMaxRows, "rows: 1 to 64");
  const MonoBuffer held = self.decoder->buffer(name);
  const size_t count = static_cast<size_t>(rows) * held.columns;
  auto* copy = new float[count];
  std::memcpy(copy, held.data, count * sizeof(float));
  nb::capsule owner(copy, [](void* memory) noexcept { delete[] static_cast<float*>(memory); });
  const size_t shape[2] = {static_cast<size_t>(rows), static_cast<size_t>(held.columns)};
  return nb::cast(nb::ndarray<nb::numpy, float>(copy, 2, shape, owner));
}

}  // namespace

void bind_mono(nb::module_& module) {
  nb::class_<BoundDecoder>(module, "MonoDecoder", "A whole decode step of a llama-family model in one call.")
      .def("__init__", &init, nb::arg("context"), nb::arg("model"), nb::arg("layers"), nb::arg("watchdog_s") = 30.0,
           nb::keep_alive<1, 2>())
      .def("step", &step, nb::arg("token_ids"), nb::arg("positions"), nb::arg("slots"), nb::arg("tables"),
           nb::arg("logits").noconvert())
      .def("run_stages", &run_stages, nb::arg("token_ids"), nb::arg("positions"), nb::arg("slots"), nb::arg("tables"),
           nb::arg("logits").noconvert(), nb::arg("start"), nb::arg("end"))
      .def("buffer", &buffer, nb::arg("name"), nb::arg("rows"))
      .def("abort", [](BoundDecoder& self) { self.decoder->abort(); });
}

}  // namespace samovar
