// What this machine can do at best, measured with the team of threads that the kernels run on.
#pragma once

#include "kernels.h"
#include "pool.h"

namespace samovar {

// Reads every cache line of `data` once, each thread a contiguous share. Returns a mix of what was read.
uint64_t read_all(Pool& pool, const uint8_t* data, size_t bytes);

// `repeats` rounds of the instruction set's products on every thread; the operations of all, two per multiply-add.
int64_t multiply(Pool& pool, const Kernels& kernels, bool int8, int64_t repeats);

}  // namespace samovar
