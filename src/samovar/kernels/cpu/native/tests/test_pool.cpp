// The pool: every thread runs every job once, callers take turns, a forked child has a team of its own, an idle pool
// uses no CPU. With the argument "time" it prints what an empty job costs.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "../pool.h"
#include "check.h"

using namespace samovar;

namespace {

using Clock = std::chrono::steady_clock;

struct Visits {
  std::vector<int> of_thread;  // each written by its own thread only
  int threads = 0;
};

void visit(void* context, int thread, int threads) {
  Visits* visits = static_cast<Visits*>(context);
  visits->of_thread[thread]++;
  if (thread == 0) visits->threads = threads;
}

void check_visits(Pool& pool, int jobs) {
  Visits visits;
  visits.of_thread.resize(pool.threads());
  for (int job = 0; job < jobs; job++) {
    pool.run(visit, &visits);
    for (int count : visits.of_thread) CHECK(count == job + 1, "job %d ran %d times", job, count);
  }
  CHECK(visits.threads == pool.threads());
}

void test_every_thread_runs_every_job() {
  for (int threads : {1, 2, 3, 5, 8}) {
    Pool pool(threads);
    CHECK(pool.threads() == threads);
    check_visits(pool, 500);
  }
  CHECK(Pool(0).threads() == 1);
  CHECK(Pool(-3).threads() == 1);
  Pool never_used(4);
}

void test_sleeping_team_wakes() {
  Pool pool(3);
  for (int round = 0; round < 20; round++) {
    check_visits(pool, 3);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

struct Inside {
  std::atomic<int> now{0};
  std::atomic<int> jobs{0};
  std::atomic<int> most{0};
};

void be_inside(void* context, int thread, int) {
  Inside* inside = static_cast<Inside*>(context);
  if (thread != 0) return;
  const int now = inside->now.fetch_add(1) + 1;
  int most = inside->most;
  while (now > most && !inside->most.compare_exchange_weak(most, now)) {
  }
  std::this_thread::sleep_for(std::chrono::microseconds(20));  // long enough for another to come in
  inside->jobs++;
  inside->now--;
}

void test_callers_take_turns() {
  Pool pool(2);
  Inside inside;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; caller++) {
    callers.emplace_back([&] {
      for (int job = 0; job < 50; job++) pool.run(be_inside, &inside);
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(inside.jobs == 200);
  CHECK(inside.most == 1, "%d callers at once", inside.most.load());
}

[[maybe_unused]] void test_forked_child_has_its_own_team() {
  Pool pool(3);
  check_visits(pool, 10);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    check_visits(pool, 10);
    _exit(0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child status %d", status);
  check_visits(pool, 10);
}

double cpu_s() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + 1e-6 * (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

void test_idle_pool_sleeps() {
  Pool pool(3);
  check_visits(pool, 10);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double before = cpu_s();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  CHECK(cpu_s() - before < 0.03, "idle for 0.3 s, used %.3f s of CPU", cpu_s() - before);
}

void test_share() {
  for (int count : {0, 1, 7, 64, 49152}) {
    for (int threads : {1, 2, 3, 5, 8}) {
      int at = 0;
      for (int thread = 0; thread < threads; thread++) {
        int low, high;
        share(count, thread, threads, &low, &high);
        CHECK(low == at && high - low >= count / threads && high - low <= count / threads + 1);
        at = high;
      }
      CHECK(at == count);
    }
  }
}

void nothing(void*, int, int) {}

void time_empty_jobs(int threads, int idle_us) {
  Pool pool(threads);
  pool.run(nothing, nullptr);
  std::vector<double> us;
  for (int job = 0; job < 4000; job++) {
    if (idle_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(idle_us));
    const Clock::time_point begin = Clock::now();
    pool.run(nothing, nullptr);
    us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  std::sort(us.begin(), us.end());
  std::printf("%d threads, %4d us between jobs: median %.2f us, p90 %.2f, p99 %.2f, max %.1f\n", threads, idle_us,
              us[us.size() / 2], us[us.size() * 9 / 10], us[us.size() * 99 / 100], us.back());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "time") == 0) {
    for (int threads : {1, 2, 3}) time_empty_jobs(threads, 0);
    time_empty_jobs(2, 50);
    time_empty_jobs(2, 1000);
    return 0;
  }
  test_share();
  test_every_thread_runs_every_job();
  test_sleeping_team_wakes();
  test_callers_take_turns();
#if !defined(__SANITIZE_THREAD__)  // which ends a forked child that starts a thread
  test_forked_child_has_its_own_team();
#endif
  test_idle_pool_sleeps();
  std::puts("pool: ok");
}
