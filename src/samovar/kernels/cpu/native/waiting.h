// How a thread waits for another: it spins for as long as a meeting of running threads takes, then sleeps.
//
// It never yields its core instead. Where other processes want the cores too, sched_yield gives away a whole time slice
// (Linux 6.18 charges it to the caller besides), and long spinning uses up the slice that the work needs: a decode step
// of two threads beside three busy processes took 30 to 40 ms on average with 10 us of spinning before the sleep, 85
// with 50 us, 150 with 200 us, and 600 to 1,600 with yielding. A sleeper is put back on a core soon after it is woken
// (7 us on two idle cores), and two threads that share a core pay a whole spin for each turn.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace samovar {

inline void pause_core() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Those who wait for one kind of change. The change itself is an atomic store of the default (sequentially consistent)
// order, followed by `wake`; `ready` reads it in the same order. So either the waker sees the sleeper, or the sleeper,
// who registers before it looks a last time, sees the change.
class Sleepers {
 public:
  using Clock = std::chrono::steady_clock;

  void wake() {
    if (count_.load() == 0) return;
    std::lock_guard<std::mutex> lock(mutex_);
    changed_.notify_all();
  }

  // Until ready(). `meanwhile` is called between looks for as long as it returns true, which it does while it has
  // something useful to do. False when `limit` has passed first.
  template <class Ready, class Meanwhile>
  bool wait(Ready ready, Meanwhile meanwhile, Clock::duration spin, Clock::duration limit) {
    do {
      if (ready()) return true;
    } while (meanwhile());
    for (int i = 0; i < kPausesAtOnce; i++) {
      if (ready()) return true;
      pause_core();
    }
    const Clock::time_point begin = Clock::now();
    while (Clock::now() - begin < spin) {
      for (int i = 0; i < kPausesAtOnce; i++) {
        if (ready()) return true;
        pause_core();
      }
    }
    std::unique_lock<std::mutex> lock(mutex_);
    count_.fetch_add(1);
    const bool in_time = sleep(lock, ready, begin, limit);
    count_.fetch_sub(1);
    return in_time;
  }

  static constexpr Clock::duration kNoLimit = Clock::duration::max();

 private:
  static constexpr int kPausesAtOnce = 16;

  template <class Ready>
  bool sleep(std::unique_lock<std::mutex>& lock, Ready ready, Clock::time_point begin, Clock::duration limit) {
    if (limit != kNoLimit) return changed_.wait_until(lock, begin + limit, ready);
    changed_.wait(lock, ready);
    return true;
  }

  std::atomic<int> count_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace samovar
