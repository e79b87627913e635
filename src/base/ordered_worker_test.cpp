#include <gtest/gtest.h>
#include <atomic>
#include <stdexcept>
#include <vector>
#include "base/thread_pool.h"

namespace linnet {
namespace {
TEST(OrderedWorker, DoesWhatIsAllowedInOrderAndBeginsAgain) {
  std::vector<size_t> done;  // written by the worker, read after finish()
  OrderedWorker worker("test", [&](size_t task) { done.push_back(task); });
  for (int round = 0; round < 3; ++round) {
    done.clear();
    worker.allow(2);
    worker.allow(5);
    worker.finish();
    EXPECT_EQ(done, (std::vector<size_t>{0, 1, 2, 3, 4}));
  }
}

TEST(OrderedWorker, AnExceptionReappearsAndEndsTheRound) {
  std::atomic<int> begun = 0;
  OrderedWorker worker("test", [&](size_t task) {
    ++begun;
    if (task == 1) throw std::runtime_error("task 1");
  });
  worker.allow(4);
  EXPECT_THROW(worker.finish(), std::runtime_error);
  EXPECT_EQ(begun, 2);
  worker.allow(1);
  EXPECT_NO_THROW(worker.finish());
}

TEST(OrderedWorker, EndsWithTasksThatWereNeverAllowed) {
  std::atomic<int> begun = 0;
  {
    OrderedWorker worker("test", [&](size_t) { ++begun; });
  }
  EXPECT_EQ(begun, 0);
}
}  // namespace
}  // namespace linnet
