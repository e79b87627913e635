#include "base/thread_pool.h"
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <cfenv>
#include <cstring>
#include <fstream>
#include <vector>
#include "base/error.h"

namespace linnet {
namespace {
TEST(ThreadPool, RunsEveryTaskOnce) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (int round = 0; round < 200; ++round) {
      const int64_t tasks = round % 37;
      std::vector<std::atomic<int>> count(static_cast<size_t>(tasks));
      pool.run(tasks, [&](int64_t task, int worker) {
        EXPECT_LT(worker, threads);
        count[static_cast<size_t>(task)]++;
      });
      for (auto& c : count) EXPECT_EQ(c, 1);
    }
  }
}

// As under `ulimit -v`: the stacks of a thousand threads do not fit. Those that were started end.
TEST(ThreadPoolDeathTest, ThreadsThatCannotBeStartedAreOneLine) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers map terabytes of address space";
#endif
  const auto start = [] {
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t bytes = pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) + (512 << 20);
    const struct rlimit limit { bytes, bytes };
    ::setrlimit(RLIMIT_AS, &limit);
    try {
      const ThreadPool pool(1000);
      ::_exit(3);
    } catch (const Error& error) {
      const bool is_told =
          std::strstr(error.what(), "cannot start a thread: ") && std::strstr(error.what(), "ulimit -v");
      ::_exit(error.kind() == ErrorKind::kSystem && is_told ? 0 : 4);
    }
  };
  EXPECT_EXIT(start(), testing::ExitedWithCode(0), "");
}

TEST(ThreadPool, AnErrorInATaskReappearsAndThePoolLives) {
  ThreadPool pool(3);
  EXPECT_THROW(pool.run(100,
                   [](int64_t index, int) {
                     if (index == 40) fail_user("task 40");
                   }),
      Error);
  std::atomic<int> count{0};
  pool.run(10, [&](int64_t, int) { count++; });
  EXPECT_EQ(count, 10);
}

// Every task waits for the others: only as many threads as there are tasks can finish them.
void run_on_all_threads(ThreadPool& pool) {
  std::atomic<int> inside{0};
  pool.run(pool.size(), [&](int64_t, int) {
    for (++inside; inside < pool.size();) std::this_thread::yield();
  });
}

// All threads have started before the fork: one that is just starting may hold a lock of AddressSanitizer, which the
// child would never get.
TEST(ThreadPool, StartsNewThreadsInAForkedProcess) {
  ThreadPool pool(4);
  run_on_all_threads(pool);
  const pid_t child = ::fork();
  if (child == 0) {
    {
      ThreadPool own(2);
      run_on_all_threads(pool);
      std::atomic<int> done{0};
      own.run(10, [&](int64_t, int) { done++; });
      if (done != 10 || pool.size() != 4) ::_exit(1);
    }
    pool.~ThreadPool();
    ::_exit(0);
  }
  int status = 1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(ThreadPool, IsDestroyedInAForkedProcessWithoutItsThreads) {
  ThreadPool pool(4);
  run_on_all_threads(pool);
  const pid_t child = ::fork();
  if (child == 0) {
    pool.~ThreadPool();
    ::_exit(0);
  }
  int status = 1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

// A pool that a host program makes or uses after it has changed the rounding mode.
TEST(ThreadPool, WorkersRoundToNearestAndTheHostKeepsItsMode) {
  std::fesetround(FE_UPWARD);
  {
    ThreadPool pool(3);
    const DefaultFloats floats;
    EXPECT_EQ(std::fegetround(), FE_TONEAREST);
    std::atomic<int> inside{0}, others{0};
    pool.run(3, [&](int64_t, int) {
      if (std::fegetround() != FE_TONEAREST) ++others;
      for (++inside; inside < 3;) std::this_thread::yield();
    });
    EXPECT_EQ(others, 0);
  }
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
  std::fesetround(FE_TONEAREST);
}

TEST(ThreadPool, AvailableThreadsIsPositive) { EXPECT_GE(available_threads(), 1); }
}  // namespace
}  // namespace linnet
