// Lambdas on a pool.
#pragma once

#include <atomic>

#include "pool.h"

namespace samovar {

// work(thread, threads) on every thread.
template <class Work>
void on_every_thread(Pool& pool, Work work) {
  pool.run([](void* context, int thread, int threads) { (*static_cast<Work*>(context))(thread, threads); }, &work);
}

// Below this many elements touched, waking the team costs more than it saves.
constexpr size_t kWorthTheTeam = 32768;

// work(low, high) over [0, count), each item of `item_elements`, by one thread or all.
template <class Work>
void over_items(Pool& pool, int count, size_t item_elements, Work work) {
  if (pool.threads() == 1 || count < 2 || count * item_elements < kWorthTheTeam) return work(0, count);
  on_every_thread(pool, [&](int thread, int threads) {
    int low, high;
    share(count, thread, threads, &low, &high);
    if (low < high) work(low, high);
  });
}

// work(thread, low, high) over pieces of [0, count) of `piece` items, taken in order by whichever thread is free.
template <class Work>
void over_queue(Pool& pool, int count, int piece, Work work) {
  std::atomic<int> next{0};
  on_every_thread(pool, [&](int thread, int) {
    for (;;) {
      const int low = next.fetch_add(piece, std::memory_order_relaxed);
      if (low >= count) return;
      work(thread, low, low + piece < count ? low + piece : count);
    }
  });
}

}  // namespace samovar
