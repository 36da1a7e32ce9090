// What the binding's files share: array types, checks, and the objects Python holds.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>
#include <mutex>
#include <string>

#include "kernels.h"
#include "layout.h"
#include "pool.h"
#include "workspace.h"

namespace samovar {

namespace nb = nanobind;

template <class T, int Dimensions>
using Array = nb::ndarray<T, nb::ndim<Dimensions>, nb::device::cpu>;
template <class T, int Dimensions>
using Rows = nb::ndarray<T, nb::ndim<Dimensions>, nb::c_contig, nb::device::cpu>;

// Raises ValueError. Shapes come from our own Python: a failure here is a bug of ours, told apart from a crash.
void require(bool holds, const char* what);

// Keeps the array with the packed records alive.
struct BoundMatrix {
  Matrix matrix;
  nb::object owner;
};

// An instruction set, a team of threads and their scratch. Calls from several Python threads wait for each other.
struct Context {
  const Kernels* kernels;
  Pool pool;
  Workspace workspace;
  std::mutex mutex;

  Context(const Kernels* chosen, int threads) : kernels(chosen), pool(threads) {}
};

// Of one layer and either kind of pool: bf16 [blocks][tiles][heads][...] as layout.h draws a tile, or uint8
// [blocks][tiles][heads][bytes of a tile].
using KVArray = nb::ndarray<nb::device::cpu>;
KVPool kv_pool(const KVArray& keys, const KVArray& values);

void bind_ops(nb::module_& module, nb::class_<Context>& context);
void bind_blocks(nb::module_& module);
void bind_mono(nb::module_& module);
void bind_peaks(nb::class_<Context>& context);

}  // namespace samovar
