#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
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

TEST(ThreadPool, AvailableThreadsIsPositive) { EXPECT_GE(available_threads(), 1); }

}  // namespace
}  // namespace linnet
