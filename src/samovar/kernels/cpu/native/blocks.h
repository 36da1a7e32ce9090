// Blocks of a KV pool as contiguous bytes and back. In the pool a block is one piece of each array (keys and values of
// every layer); outside it is those pieces one after the other, in the arrays' order. Copies only: no format is known here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace samovar {

// The pieces of block b begin at data + b * stride.
struct Pieces {
  uint8_t* data;
  size_t stride;
  size_t bytes;
};

struct Blocks {
  std::vector<Pieces> arrays;
  int64_t num_blocks = 0;
  size_t block_bytes = 0;  // the sum of the arrays' pieces
};

// Block blocks[i] is copied to memory + offsets[i] (gather), or from there (scatter). Nothing is checked: the caller has.
void gather(const Blocks& pool, const int64_t* blocks, size_t count, uint8_t* memory, const int64_t* offsets);
void scatter(const Blocks& pool, const int64_t* blocks, size_t count, const uint8_t* memory, const int64_t* offsets);

}  // namespace samovar
