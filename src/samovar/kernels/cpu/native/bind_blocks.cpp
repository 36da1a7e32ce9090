// Blocks of a KV pool for Python: arrays are looked at once, when they are bound, block numbers and offsets at each call.
#include <nanobind/stl/vector.h>

#include <vector>

#include "bind.h"
#include "blocks.h"

namespace samovar {
namespace {

using AnyArray = nb::ndarray<nb::device::cpu>;

// Keeps the pool's arrays alive.
struct BoundBlocks {
  Blocks pool;
  std::vector<AnyArray> owners;
};

Pieces pieces_of(const AnyArray& array, int64_t num_blocks) {
  require(array.ndim() >= 2, "arrays: each needs a dimension of blocks and at least one more");
  require(static_cast<int64_t>(array.shape(0)) == num_blocks, "arrays: all must have the same number of blocks");
  int64_t elements = 1;
  for (size_t i = array.ndim(); i-- > 1; elements *= static_cast<int64_t>(array.shape(i))) {
    require(array.shape(i) > 0, "arrays: no dimension may be empty");
    require(array.shape(i) == 1 || array.stride(i) == elements, "arrays: a block's piece must be contiguous");
  }
  const int64_t stride = num_blocks == 1 ? elements : array.stride(0);
  require(stride >= elements, "arrays: the pieces of two blocks must not overlap");
  const size_t item = array.itemsize();
  return Pieces{static_cast<uint8_t*>(array.data()), static_cast<size_t>(stride) * item,
                static_cast<size_t>(elements) * item};
}

void check_places(const Blocks& pool, const Rows<const int64_t, 1>& blocks, size_t memory_bytes,
                  const Rows<const int64_t, 1>& offsets) {
  require(blocks.size() == offsets.size(), "blocks and offsets must be as many");
  require(blocks.size() == 0 || memory_bytes >= pool.block_bytes, "memory: too small for a block");
  for (size_t i = 0; i < blocks.size(); i++) {
    require(blocks(i) >= 0 && blocks(i) < pool.num_blocks, "blocks: must be numbers of blocks of the pool");
    require(offsets(i) >= 0 && static_cast<size_t>(offsets(i)) <= memory_bytes - pool.block_bytes,
            "offsets: blocks must lie inside the memory");
  }
}

}  // namespace

void bind_blocks(nb::module_& module) {
  nb::class_<BoundBlocks>(module, "Blocks", "The blocks of a KV pool, spread over arrays that it keeps alive.")
      .def(
          "__init__",
          [](BoundBlocks* self, const std::vector<AnyArray>& arrays) {
            require(!arrays.empty() && arrays[0].ndim() > 0 && arrays[0].shape(0) > 0, "arrays: there is no block");
            Blocks pool;
            pool.num_blocks = static_cast<int64_t>(arrays[0].shape(0));
            for (const AnyArray& array : arrays) {
              pool.arrays.push_back(pieces_of(array, pool.num_blocks));
              pool.block_bytes += pool.arrays.back().bytes;
            }
            new (self) BoundBlocks{std::move(pool), arrays};
          },
          nb::arg("arrays"))
      .def_prop_ro("num_blocks", [](const BoundBlocks& self) { return self.pool.num_blocks; })
      .def_prop_ro("block_bytes", [](const BoundBlocks& self) { return self.pool.block_bytes; })
      .def(
          "gather",
          [](const BoundBlocks& self, const Rows<const int64_t, 1>& blocks, const Rows<uint8_t, 1>& memory,
             const Rows<const int64_t, 1>& offsets) {
            check_places(self.pool, blocks, memory.size(), offsets);
            nb::gil_scoped_release released;
            gather(self.pool, blocks.data(), blocks.size(), memory.data(), offsets.data());
          },
          nb::arg("blocks"), nb::arg("memory").noconvert(), nb::arg("offsets"))
      .def(
          "scatter",
          [](const BoundBlocks& self, const Rows<const int64_t, 1>& blocks, const Rows<const uint8_t, 1>& memory,
             const Rows<const int64_t, 1>& offsets) {
            check_places(self.pool, blocks, memory.size(), offsets);
            nb::gil_scoped_release released;
            scatter(self.pool, blocks.data(), blocks.size(), memory.data(), offsets.data());
          },
          nb::arg("blocks"), nb::arg("memory").noconvert(), nb::arg("offsets"));
}

}  // namespace samovar
