// A team of threads that runs one job at a time: the caller is thread 0.
#pragma once

#include <cstdint>
#include <memory>

namespace samovar {

// Called once on every thread of the team.
using Job = void (*)(void* context, int thread, int threads);

class Pool {
 public:
  // Threads are started by the first run.
  explicit Pool(int threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const;
  // Returns when every thread has left the job. One caller at a time (others wait). In a forked child the team is
  // started anew. A job must not throw, and must not run another on the same pool. Throws std::system_error when a
  // thread cannot be started; nothing has run then.
  void run(Job job, void* context);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// [low, high) of `count` items for this thread: contiguous, sizes differ by at most one.
inline void share(int count, int thread, int threads, int* low, int* high) {
  *low = static_cast<int>(static_cast<int64_t>(count) * thread / threads);
  *high = static_cast<int>(static_cast<int64_t>(count) * (thread + 1) / threads);
}

}  // namespace samovar
