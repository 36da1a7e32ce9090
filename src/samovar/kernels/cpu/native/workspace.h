// Scratch memory of the ops: one buffer that only grows, cut into pieces by its user, and the rounded activations of a
// linear as a piece of it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <new>

#include "layout.h"

namespace samovar {

constexpr size_t kCacheLine = 64;
inline size_t whole_lines(size_t bytes) { return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine; }

// Owned by one caller at a time. What it held is lost when it grows.
class Workspace {
 public:
  Workspace() = default;
  ~Workspace() { std::free(memory_); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // At least this many bytes, 64-byte aligned; unspecified contents. Throws std::bad_alloc.
  uint8_t* at_least(size_t bytes) {
    if (bytes <= size_) return memory_;
    // By half more at least: a context that grows token by token must not move the buffer every time.
    const size_t wanted = whole_lines(std::max(bytes, size_ + size_ / 2));
    void* fresh = nullptr;
    if (posix_memalign(&fresh, kCacheLine, wanted) != 0) throw std::bad_alloc();
    std::free(memory_);
    memory_ = static_cast<uint8_t*>(fresh);
    size_ = wanted;
    return memory_;
  }

 private:
  uint8_t* memory_ = nullptr;
  size_t size_ = 0;
};

// Cuts pieces off a buffer, each on its own cache lines. With nullptr it only measures.
class Carver {
 public:
  explicit Carver(uint8_t* memory) : memory_(memory) {}

  template <class T>
  T* take(size_t count) {
    T* piece = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + used_);
    used_ += whole_lines(count * sizeof(T));
    return piece;
  }
  size_t used() const { return used_; }

 private:
  uint8_t* memory_;
  size_t used_ = 0;
};

// Row stride of activations that serve every matrix in `strips`' count: whole strips, an odd number of them, so that
// the rows of one column do not all fall into the same few sets of the cache.
inline int32_t activation_stride(int32_t strips) { return (strips | 1) * kStripK; }

constexpr bool is_int8(Format format) { return format != Format::bf16 && format != Format::f32; }

// Room for `rows` rows of every form that `formats` need; bf16_inputs: of the kernels.
inline Activations take_activations(Carver& carver, std::initializer_list<Format> formats, bool bf16_inputs, int rows,
                                    int32_t stride) {
  bool int8 = false, bf16 = false, f32 = false;
  for (Format format : formats) {
    int8 |= is_int8(format) && !bf16_inputs;
    bf16 |= format == Format::bf16 || (is_int8(format) && bf16_inputs);
    f32 |= format == Format::f32;
  }
  const size_t elements = static_cast<size_t>(rows) * stride;
  Activations act{};
  act.stride = stride;
  if (int8) {
    act.q = carver.take<int8_t>(elements);
    act.scale = carver.take<float>(elements / 32);
    act.sum = carver.take<int32_t>(elements / 16);
    act.scaled_sum = carver.take<float>(elements / 32);
  }
  if (bf16) act.b = carver.take<uint16_t>(elements);
  if (f32) act.f = carver.take<float>(elements);
  return act;
}

}  // namespace samovar
