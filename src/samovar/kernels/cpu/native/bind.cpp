// The Python module: instruction sets, packing, and the objects that hold weights and threads.
#include "bind.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <vector>

#include "pack.h"

namespace samovar {

void require(bool holds, const char* what) {
  if (!holds) throw nb::value_error(what);
}

namespace {

Format format_named(const std::string& name) {
  if (name == "bf16") return Format::bf16;
  if (name == "q8") return Format::q8;
  if (name == "q4_0") return Format::q4_0;
  if (name == "q4_1") return Format::q4_1;
  if (name == "q4_k") return Format::q4_k;
  if (name == "q6_k") return Format::q6_k;
  if (name == "f32") return Format::f32;
  throw nb::value_error(("no format is called " + name).c_str());
}

Source source_named(const std::string& name) {
  if (name == "f32") return Source::f32;
  if (name == "f16") return Source::f16;
  if (name == "bf16") return Source::bf16;
  if (name == "q4_0") return Source::q4_0;
  if (name == "q4_1") return Source::q4_1;
  if (name == "q8_0") return Source::q8_0;
  if (name == "q4_k") return Source::q4_k;
  if (name == "q6_k") return Source::q6_k;
  throw nb::value_error(("no source is called " + name).c_str());
}

// raw [count][bytes of a row]; columns [first, first + number of rows) of the matrix take them in the order of `order`.
void pack_rows(const std::string& format_name, const Rows<uint8_t, 1>& data, int n, int k, int first,
               const std::string& source_name, const Rows<const uint8_t, 2>& raw,
               const std::optional<Rows<const int32_t, 1>>& order) {
  const Format format = format_named(format_name);
  const Source source = source_named(source_name);
  require(can_pack(format, source), "this source does not pack to this format");
  require(k > 0 && k % source_group(source) == 0, "k must be whole blocks of the source");
  require(raw.shape(1) == source_row_bytes(source, k), "raw: the second dimension must be the bytes of a row");
  require(data.size() == packed_bytes(format, n, k), "data: must have packed_bytes(format, n, k) bytes");
  require(reinterpret_cast<uintptr_t>(data.data()) % kCacheLine == 0, "data: must be aligned to 64 bytes");
  const size_t count = order ? order->size() : raw.shape(0);
  require(first >= 0 && first + static_cast<int64_t>(count) <= n, "first: columns must lie within [0, n)");
  if (order)
    for (size_t i = 0; i < count; i++)
      require((*order)(i) >= 0 && static_cast<size_t>((*order)(i)) < raw.shape(0), "order: must name rows of raw");
  nb::gil_scoped_release released;
  pack(format, data.data(), k, first, static_cast<int>(count), source, raw.data(), order ? order->data() : nullptr);
}

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const Kernels* const* table = kernels_available(); *table != nullptr; table++) names.emplace_back((*table)->name);
  return names;
}

}  // namespace

namespace {

void require_pool(const KVArray& keys, const KVArray& values, nb::dlpack::dtype dtype, size_t dimensions) {
  for (const auto* array : {&keys, &values}) {
    require(array->dtype() == dtype && array->ndim() == dimensions,
            "keys, values: must be uint16 in six dimensions or uint8 in four");
    int64_t stride = 1;
    for (size_t i = dimensions; i-- > 0; stride *= static_cast<int64_t>(array->shape(i)))
      require(array->stride(i) == stride || array->shape(i) == 1, "keys, values: must be contiguous");
  }
  for (int i = 0; i < 3; i++) require(keys.shape(i) == values.shape(i), "keys and values must have the same blocks");
}

}  // namespace

KVPool kv_pool(const KVArray& keys, const KVArray& values) {
  const bool int8 = keys.dtype() == nb::dtype<uint8_t>();
  size_t head_dim;
  if (int8) {
    require_pool(keys, values, nb::dtype<uint8_t>(), 4);
    const size_t bytes = keys.shape(3), scales = kTileTokens * sizeof(float);
    require(values.shape(3) == bytes && bytes > scales && (bytes - scales) % kTileTokens == 0,
            "keys, values: tiles must have 16 * head_dim + 64 bytes");
    head_dim = (bytes - scales) / kTileTokens;
  } else {
    require_pool(keys, values, nb::dtype<uint16_t>(), 6);
    head_dim = keys.shape(3) * 2;
    require(keys.shape(4) == kTileTokens && keys.shape(5) == 2, "keys: tiles must be [head_dim / 2][16][2]");
    require(values.shape(3) == kTileTokens / 2 && values.shape(4) == head_dim && values.shape(5) == 2,
            "values: tiles must be [8][head_dim][2]");
  }
  require(head_dim % 32 == 0 && head_dim <= 256, "head_dim must be a multiple of 32, at most 256");
  return KVPool{static_cast<uint8_t*>(keys.data()), static_cast<uint8_t*>(values.data()),
                static_cast<int32_t>(keys.shape(1)) * kTileTokens, static_cast<int32_t>(keys.shape(2)),
                static_cast<int32_t>(head_dim), int8 ? KVFormat::int8 : KVFormat::bf16};
}

}  // namespace samovar

NB_MODULE(_native, module) {
  using namespace samovar;
  // At the end of the process a thread may still hang in a read of the disk; what its frames hold is no leak.
  nb::set_leak_warnings(false);
  module.doc() = "Native kernels for CPUs; samovar.kernels.cpu gives them the signatures of the table of ops.";
  module.def("instruction_sets", &instruction_sets, "What this build holds and this CPU runs, best first.");
  module.def(
      "packed_bytes",
      [](const std::string& format, int n, int k) {
        require(n > 0 && k > 0, "n and k must be positive");
        return packed_bytes(format_named(format), n, k);
      },
      nb::arg("format"), nb::arg("n"), nb::arg("k"));
  module.def("can_pack", [](const std::string& format, const std::string& source) {
    return can_pack(format_named(format), source_named(source));
  });
  module.def("source_row_bytes", [](const std::string& source, int k) { return source_row_bytes(source_named(source), k); });
  module.def("pack", &pack_rows, nb::arg("format"), nb::arg("data").noconvert(), nb::arg("n"), nb::arg("k"), nb::arg("first"),
             nb::arg("source"), nb::arg("raw"), nb::arg("order").none() = nb::none());

  nb::class_<BoundMatrix>(module, "Matrix", "A packed matrix [n, k] over memory that it keeps alive.")
      .def(
          "__init__",
          [](BoundMatrix* self, const std::string& name, int n, int k, const Rows<uint8_t, 1>& data) {
            const Format format = format_named(name);
            require(n > 0 && k > 0, "n and k must be positive");
            require(data.size() == packed_bytes(format, n, k), "data: must have packed_bytes(format, n, k) bytes");
            require(reinterpret_cast<uintptr_t>(data.data()) % kCacheLine == 0, "data: must be aligned to 64 bytes");
            new (self) BoundMatrix{packed_matrix(format, n, k, data.data()), nb::cast(data)};
          },
          nb::arg("format"), nb::arg("n"), nb::arg("k"), nb::arg("data").noconvert())
      .def_prop_ro("n", [](const BoundMatrix& self) { return self.matrix.n; })
      .def_prop_ro("k", [](const BoundMatrix& self) { return self.matrix.k; });

  nb::class_<Context> context(module, "Context", "An instruction set, a team of threads and their scratch memory.");
  context
      .def(
          "__init__",
          [](Context* self, const std::string& isa, int threads) {
            const Kernels* kernels = kernels_named(isa.c_str());
            require(kernels != nullptr, "isa: this build or this CPU lacks it");
            require(threads >= 1 && threads <= 1024, "threads: must be 1 to 1024");
            new (self) Context(kernels, threads);
          },
          nb::arg("isa"), nb::arg("threads"))
      .def_prop_ro("isa", [](const Context& self) { return std::string(self.kernels->name); })
      .def_prop_ro("bf16_inputs", [](const Context& self) { return self.kernels->bf16_inputs; })
      .def_prop_ro("threads", [](const Context& self) { return self.pool.threads(); });
  bind_ops(module, context);
  bind_mono(module);
  bind_blocks(module);
  bind_peaks(context);
}
