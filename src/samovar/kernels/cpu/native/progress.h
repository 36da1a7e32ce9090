// How far each thread of a step has come, and the wait for the others: words that only grow, an abort word, a watchdog.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "waiting.h"

namespace samovar {

enum class StepResult : uint8_t { done, aborted, timed_out };

// Stages are numbered through all steps, so nothing is cleared between them: a word left behind by a step that ended
// early is below every number of the next. Thread t has left stage number s when its word has reached s.
class Progress {
 public:
  explicit Progress(int threads) : words_(threads) {}

  // Before a step of `stages`, by the one thread that runs. Returns the number before its first stage's.
  uint64_t begin(int stages) {
    const uint64_t before = last_;
    last_ += static_cast<uint64_t>(stages);
    ended_.store(StepResult::done);
    return before;
  }

  void arrive(int thread, uint64_t stage) {
    words_[thread].reached.store(stage);
    sleepers_.wake();
  }

  // Until every thread has left `stage`: true; false when the step was ended instead, by `end` or because this took
  // longer than `limit`. `meanwhile` is called between looks until it returns false.
  template <class Meanwhile>
  bool wait(uint64_t stage, Sleepers::Clock::duration limit, Meanwhile meanwhile) {
    size_t first_missing = 0;
    const auto ready = [&] {
      if (ended_.load() != StepResult::done) return true;
      while (first_missing < words_.size() && words_[first_missing].reached.load() >= stage) first_missing++;
      return first_missing == words_.size();
    };
    if (!sleepers_.wait(ready, meanwhile, kSpin, limit)) end(StepResult::timed_out);
    return result() == StepResult::done;
  }

  // From any thread: the step that runs, if one does, ends at the next look of each of its threads.
  void end(StepResult why) {
    ended_.store(why);
    sleepers_.wake();
  }
  StepResult result() const { return ended_.load(); }

 private:
  // Longer than threads that run are apart at the end of a stage.
  static constexpr std::chrono::microseconds kSpin{30};

  struct alignas(64) Word {
    std::atomic<uint64_t> reached{0};
  };
  std::vector<Word> words_;
  uint64_t last_ = 0;
  alignas(64) std::atomic<StepResult> ended_{StepResult::done};
  Sleepers sleepers_;
};

}  // namespace samovar
