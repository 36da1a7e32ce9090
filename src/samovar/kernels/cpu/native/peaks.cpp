#include "peaks.h"

#include <atomic>

#include "parallel.h"

namespace samovar {

namespace {

typedef uint64_t Line __attribute__((vector_size(64), aligned(8), may_alias));

// Four stretches side by side: more pages that a core's own prefetching follows at a time.
uint64_t read_lines(const uint8_t* data, size_t lines) {
  constexpr int kStretches = 4;
  constexpr size_t kAhead = 2048;
  const size_t each = lines / kStretches;
  Line mixed{};  // one: narrow registers would not hold more
  for (size_t line = 0; line < each; line++) {
    for (int i = 0; i < kStretches; i++) {
      const uint8_t* at = data + (i * each + line) * 64;
      __builtin_prefetch(at + kAhead);
      mixed ^= *reinterpret_cast<const Line*>(at);
    }
  }
  for (size_t line = kStretches * each; line < lines; line++) mixed ^= *reinterpret_cast<const Line*>(data + line * 64);
  uint64_t out = 0;
  for (int i = 0; i < 8; i++) out ^= mixed[i];
  return out;
}

}  // namespace

uint64_t read_all(Pool& pool, const uint8_t* data, size_t bytes) {
  const size_t lines = bytes / 64;
  std::atomic<uint64_t> out{0};
  on_every_thread(pool, [&](int thread, int threads) {
    const size_t low = lines * thread / threads, high = lines * (thread + 1) / threads;
    out.fetch_xor(read_lines(data + low * 64, high - low), std::memory_order_relaxed);
  });
  return out;
}

int64_t multiply(Pool& pool, const Kernels& kernels, bool int8, int64_t repeats) {
  std::atomic<int64_t> operations{0};
  on_every_thread(pool, [&](int, int) {
    operations.fetch_add(kernels.multiply(int8, repeats), std::memory_order_relaxed);
  });
  return operations;
}

}  // namespace samovar
