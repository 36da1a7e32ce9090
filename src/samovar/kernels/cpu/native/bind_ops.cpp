// The ops of the normal path as methods of Context: shapes and strides are checked here, then the GIL is let go.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <vector>

#include "bind.h"
#include "draw.h"
#include "ops.h"

namespace samovar {
namespace {

// x [rows][columns] with any row stride.
template <class T>
size_t row_stride(const Array<T, 2>& x, size_t columns, const char* what) {
  require(x.shape(1) == columns && (x.stride(1) == 1 || columns == 1), what);
  return x.shape(0) > 1 ? static_cast<size_t>(x.stride(0)) : columns;
}

// x [rows][heads][head_dim], whole rows side by side, with any row stride.
template <class T>
size_t row_stride(const Array<T, 3>& x, const char* what) {
  require(x.stride(2) == 1 && (x.shape(1) == 1 || x.stride(1) == static_cast<int64_t>(x.shape(2))), what);
  return x.shape(0) > 1 ? static_cast<size_t>(x.stride(0)) : x.shape(1) * x.shape(2);
}

const float* bias_of(const std::optional<Rows<const float, 1>>& bias, const Matrix& matrix) {
  if (!bias) return nullptr;
  require(bias->size() == static_cast<size_t>(matrix.n), "bias: must have n entries");
  return bias->data();
}

// Runs with the context's scratch, without the GIL.
template <class Work>
void run(Context& context, Work work) {
  nb::gil_scoped_release released;
  std::lock_guard<std::mutex> held(context.mutex);
  work();
}

void bound_linear(Context& context, const Array<const float, 2>& x, const BoundMatrix& bound,
                  const std::optional<Rows<const float, 1>>& bias, bool add, const Array<float, 2>& out) {
  const Matrix& matrix = bound.matrix;
  const size_t ld = row_stride(x, matrix.k, "x: must be [rows][k] with columns side by side");
  const size_t out_ld = row_stride(out, matrix.n, "out: must be [rows][n] with columns side by side");
  require(out.shape(0) == x.shape(0), "out: must have x's rows");
  const float* offsets = bias_of(bias, matrix);
  run(context, [&] {
    linear(context.pool, *context.kernels, matrix, x.data(), static_cast<int>(x.shape(0)), ld, offsets, add, out.data(),
           out_ld, context.workspace);
  });
}

void bound_linear_swiglu(Context& context, const Array<const float, 2>& x, const BoundMatrix& bound,
                         const std::optional<Rows<const float, 1>>& bias, const Array<float, 2>& out) {
  const Matrix& matrix = bound.matrix;
  require(matrix.n % 64 == 0, "matrix: must hold whole pairs of 32 gate and 32 up columns");
  const size_t ld = row_stride(x, matrix.k, "x: must be [rows][k] with columns side by side");
  const size_t out_ld = row_stride(out, matrix.n / 2, "out: must be [rows][n / 2] with columns side by side");
  require(out.shape(0) == x.shape(0), "out: must have x's rows");
  const float* offsets = bias_of(bias, matrix);
  run(context, [&] {
    linear_swiglu(context.pool, *context.kernels, matrix, x.data(), static_cast<int>(x.shape(0)), ld, offsets,
                  out.data(), out_ld, context.workspace);
  });
}

void bound_embed(Context& context, const BoundMatrix& bound, const Rows<const int64_t, 1>& ids,
                 const Array<float, 2>& out) {
  const size_t out_ld = row_stride(out, bound.matrix.k, "out: must be [rows][k] with columns side by side");
  require(out.shape(0) == ids.size(), "out: must have a row per id");
  for (size_t i = 0; i < ids.size(); i++)
    require(ids(i) >= 0 && ids(i) < bound.matrix.n, "ids: must lie within [0, n)");
  run(context, [&] {
    embed(context.pool, *context.kernels, bound.matrix, ids.data(), static_cast<int>(ids.size()), out.data(), out_ld);
  });
}

void bound_rms_norm(Context& context, const Array<const float, 2>& x, const Rows<const float, 1>& weight, float eps,
                    const Array<float, 2>& out) {
  const size_t n = weight.size();
  const size_t ld = row_stride(x, n, "x: must be [rows][n] with columns side by side");
  const size_t out_ld = row_stride(out, n, "out: must be [rows][n] with columns side by side");
  require(out.shape(0) == x.shape(0), "out: must have x's rows");
  run(context, [&] {
    rms_norm(context.pool, *context.kernels, x.data(), ld, weight.data(), eps, static_cast<int>(x.shape(0)),
             static_cast<int>(n), out.data(), out_ld);
  });
}

void bound_rope(Context& context, const Array<float, 3>& x, const Rows<const int64_t, 1>& positions,
                const Rows<const float, 2>& cos, const Rows<const float, 2>& sin) {
  const size_t ld = row_stride(x, "x: must be [rows][heads][head_dim], heads side by side");
  require(x.shape(2) % 32 == 0 && cos.shape(1) == x.shape(2) / 2, "cos: must be [positions][head_dim / 2], head_dim a multiple of 32");
  require(sin.shape(0) == cos.shape(0) && sin.shape(1) == cos.shape(1), "sin: must have cos's shape");
  require(positions.size() == x.shape(0), "positions: must have x's rows");
  for (size_t i = 0; i < positions.size(); i++)
    require(positions(i) >= 0 && static_cast<size_t>(positions(i)) < cos.shape(0), "positions: must have a row in cos");
  run(context, [&] {
    rope_rows(context.pool, *context.kernels, x.data(), ld, static_cast<int>(x.shape(0)), static_cast<int>(x.shape(1)),
              static_cast<int>(x.shape(2)), positions.data(), cos.data(), sin.data());
  });
}

void bound_write_kv(Context& context, const KVArray& keys, const KVArray& values, const Rows<const int64_t, 1>& slots,
                    const Array<const float, 3>& k, const Array<const float, 3>& v) {
  const KVPool pool = kv_pool(keys, values);
  const int64_t slot_count = static_cast<int64_t>(keys.shape(0)) * pool.block_tokens;
  for (const auto* array : {&k, &v})
    require(array->shape(0) == slots.size() && array->shape(1) == static_cast<size_t>(pool.kv_heads) &&
                array->shape(2) == static_cast<size_t>(pool.head_dim),
            "k, v: must be [slots][kv_heads][head_dim]");
  for (size_t i = 0; i < slots.size(); i++) require(slots(i) >= 0 && slots(i) < slot_count, "slots: must lie in the pool");
  const size_t k_ld = row_stride(k, "k: heads must lie side by side");
  const size_t v_ld = row_stride(v, "v: heads must lie side by side");
  run(context, [&] {
    write_kv(context.pool, *context.kernels, pool, slots.data(), k.data(), k_ld, v.data(), v_ld,
             static_cast<int>(slots.size()));
  });
}

// `tables`: the address of each row's int64 block table, which must cover the row's last position and stay where it is.
void bound_attention(Context& context, const Array<const float, 3>& q, const KVArray& keys, const KVArray& values,
                     const Rows<const int32_t, 1>& firsts, const Rows<const int32_t, 1>& counts,
                     const Rows<const int32_t, 1>& starts, const Rows<const int64_t, 1>& tables, float scale,
                     const Array<float, 3>& out) {
  const KVPool pool = kv_pool(keys, values);
  const size_t q_ld = row_stride(q, "q: heads must lie side by side");
  const size_t out_ld = row_stride(out, "out: heads must lie side by side");
  const int heads = static_cast<int>(q.shape(1));
  require(q.shape(2) == static_cast<size_t>(pool.head_dim), "q: must be [tokens][heads][head_dim]");
  require(heads % pool.kv_heads == 0 && heads / pool.kv_heads <= 64, "q: at most 64 heads per KV head, evenly");
  for (int i = 0; i < 3; i++) require(out.shape(i) == q.shape(i), "out: must have q's shape");
  const size_t count = firsts.size();
  require(counts.size() == count && starts.size() == count && tables.size() == count,
          "firsts, counts, starts, tables: must have one entry per row");
  std::vector<AttentionRow> rows(count);
  for (size_t i = 0; i < count; i++) {
    rows[i] = {firsts(i), counts(i), starts(i), reinterpret_cast<const int64_t*>(tables(i))};
    require(rows[i].count > 0 && rows[i].first >= 0 && rows[i].start >= 0 && rows[i].table != nullptr &&
                rows[i].first + static_cast<int64_t>(rows[i].count) <= static_cast<int64_t>(q.shape(0)),
            "firsts, counts: rows must lie within q");
    const int64_t used = (static_cast<int64_t>(rows[i].start) + rows[i].count - 1) / pool.block_tokens + 1;
    for (int64_t b = 0; b < used; b++)
      require(rows[i].table[b] >= 0 && static_cast<size_t>(rows[i].table[b]) < keys.shape(0),
              "tables: blocks must lie in the pool");
  }
  run(context, [&] {
    attention(context.pool, *context.kernels, pool, q.data(), q_ld, rows.data(), static_cast<int>(count), heads, scale,
              out.data(), out_ld, context.workspace);
  });
}

// index [rows] and finite [rows] are written.
void bound_argmax(Context& context, const Array<const float, 2>& x, const Rows<int32_t, 1>& index,
                  const Rows<bool, 1>& finite) {
  const size_t ld = row_stride(x, x.shape(1), "x: columns must lie side by side");
  require(x.shape(1) > 0, "x: must have columns");
  require(index.size() == x.shape(0) && finite.size() == x.shape(0), "index, finite: must have x's rows");
  run(context, [&] {
    argmax(context.pool, *context.kernels, x.data(), ld, static_cast<int>(x.shape(0)), static_cast<int>(x.shape(1)),
           index.data(), finite.data());
  });
}

// One token for each of `rows` of x; the rules are parallel arrays, as draw.h says.
void bound_draw(Context& context, const Array<const float, 2>& x, const Rows<const int32_t, 1>& rows,
                const Rows<const double, 1>& temperature, const Rows<const double, 1>& min_p,
                const Rows<const int32_t, 1>& top_k, const Rows<const double, 1>& top_p,
                const Rows<const double, 1>& u, const Rows<int32_t, 1>& token) {
  const size_t ld = row_stride(x, x.shape(1), "x: columns must lie side by side");
  const size_t count = rows.size();
  require(x.shape(1) > 0, "x: must have columns");
  require(temperature.size() == count && min_p.size() == count && top_k.size() == count && top_p.size() == count &&
              u.size() == count && token.size() == count,
          "temperature, min_p, top_k, top_p, u, token: must have one entry per row");
  std::vector<DrawRule> rules(count);
  for (size_t i = 0; i < count; i++) {
    require(rows(i) >= 0 && static_cast<size_t>(rows(i)) < x.shape(0), "rows: must lie within x");
    require(temperature(i) > 0 && u(i) >= 0 && u(i) < 1, "temperature, u: out of range");
    rules[i] = {static_cast<float>(temperature(i)), static_cast<float>(min_p(i)), top_k(i), top_p(i), u(i)};
  }
  run(context, [&] {
    draw(context.pool, *context.kernels, x.data(), ld, static_cast<int>(x.shape(1)), rows.data(), rules.data(),
         static_cast<int>(count), token.data(), context.workspace);
  });
}

}  // namespace

void bind_ops(nb::module_&, nb::class_<Context>& context) {
  context
      .def("linear", &bound_linear, nb::arg("x"), nb::arg("matrix"), nb::arg("bias").none(), nb::arg("add"),
           nb::arg("out").noconvert())
      .def("linear_swiglu", &bound_linear_swiglu, nb::arg("x"), nb::arg("matrix"), nb::arg("bias").none(),
           nb::arg("out").noconvert())
      .def("embed", &bound_embed, nb::arg("matrix"), nb::arg("ids"), nb::arg("out").noconvert())
      .def("rms_norm", &bound_rms_norm, nb::arg("x"), nb::arg("weight"), nb::arg("eps"),
           nb::arg("out").noconvert())
      .def("rope", &bound_rope, nb::arg("x").noconvert(), nb::arg("positions"), nb::arg("cos"), nb::arg("sin"))
      .def("write_kv", &bound_write_kv, nb::arg("keys").noconvert(), nb::arg("values").noconvert(),
           nb::arg("slots"), nb::arg("k"), nb::arg("v"))
      .def("attention", &bound_attention, nb::arg("q"), nb::arg("keys").noconvert(), nb::arg("values").noconvert(), nb::arg("firsts"),
           nb::arg("counts"), nb::arg("starts"), nb::arg("tables"), nb::arg("scale"), nb::arg("out").noconvert())
      .def("argmax", &bound_argmax, nb::arg("x"), nb::arg("index").noconvert(),
           nb::arg("finite").noconvert())
      .def("draw", &bound_draw, nb::arg("x"), nb::arg("rows"), nb::arg("temperature"), nb::arg("min_p"),
           nb::arg("top_k"), nb::arg("top_p"), nb::arg("u"),
           nb::arg("token").noconvert());
}

}  // namespace samovar
