// The team of threads: started by the first job, spinning shortly between jobs, asleep when there is nothing to do.
#include "pool.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "waiting.h"

namespace samovar {
namespace {

// The jobs of one step follow each other within this; a sleeping thread takes tens of microseconds to come back.
constexpr std::chrono::microseconds kSpin{20};

// A count that only grows, and threads that wait until it reaches a value.
class Gate {
 public:
  void advance() {
    count_.fetch_add(1);
    sleepers_.wake();
  }
  void wait_for(uint64_t target) {
    sleepers_.wait([&] { return count_.load() >= target; }, [] { return false; }, kSpin, Sleepers::kNoLimit);
  }

 private:
  alignas(64) std::atomic<uint64_t> count_{0};
  Sleepers sleepers_;
};

// The threads of one process. Jobs are numbered; job j has begun when `begun` reaches j, and is over when `ended` has
// been advanced j times by each of the `size - 1` workers. Nothing is ever cleared.
class Team {
 public:
  explicit Team(int size) : process(getpid()), size_(size) {
    workers_.reserve(size - 1);
    try {
      for (int thread = 1; thread < size; thread++) workers_.emplace_back([this, thread] { work(thread); });
    } catch (...) {
      stop();
      throw;
    }
  }
  ~Team() { stop(); }

  void run(Job job, void* context) {
    std::lock_guard<std::mutex> lock(one_caller_);
    job_ = job;
    context_ = context;
    jobs_++;
    begun_.advance();
    job(context, 0, size_);
    ended_.wait_for(jobs_ * static_cast<uint64_t>(size_ - 1));
  }

  const pid_t process;

 private:
  void work(int thread) {
    for (uint64_t next = 1;; next++) {
      begun_.wait_for(next);
      if (stopping_) return;
      job_(context_, thread, size_);
      ended_.advance();
    }
  }

  void stop() {
    stopping_ = true;
    begun_.advance();
    for (std::thread& worker : workers_) worker.join();
  }

  const int size_;
  // Written before `begun_` advances, read by workers after they saw it.
  Job job_ = nullptr;
  void* context_ = nullptr;
  bool stopping_ = false;

  uint64_t jobs_ = 0;
  std::mutex one_caller_;
  Gate begun_;
  Gate ended_;
  std::vector<std::thread> workers_;
};

}  // namespace

struct Pool::State {
  explicit State(int threads) : threads(threads < 1 ? 1 : threads) {}

  ~State() {
    Team* last = team.load();
    if (last != nullptr && last->process == getpid()) delete last;
  }

  // The team of this process. One that a fork copied is left as it is: its threads do not exist here, and its locks may
  // be held by them for ever.
  Team& here() {
    Team* current = team.load();
    if (current != nullptr && current->process == getpid()) return *current;
    Team* fresh = new Team(threads);
    if (team.compare_exchange_strong(current, fresh)) return *fresh;
    delete fresh;  // another caller of this process was first
    return *current;
  }

  const int threads;
  std::atomic<Team*> team{nullptr};
};

Pool::Pool(int threads) : state_(new State(threads)) {}
Pool::~Pool() = default;

int Pool::threads() const { return state_->threads; }

void Pool::run(Job job, void* context) { state_->here().run(job, context); }

}  // namespace samovar
