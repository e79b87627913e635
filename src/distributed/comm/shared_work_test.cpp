// Work that ranks divide: the results are those of one rank, in the same order.
#include <gtest/gtest.h>
#include <atomic>
#include "base/process.h"
#include "comm_testing.h"
#include "distributed/comm/agreement.h"
#include "error_of.h"

namespace linnet {
namespace {
TEST(SharedWork, EveryRankHasAllResultsInTheirOrder) {
  for (const int ranks : {1, 2, 3, 4})
    for (const int64_t count : {0, 1, 3, 8}) {
      std::atomic<int64_t> done = 0;
      testing::run_ranks(ranks, [&](Communicator& world) {
        SharedWork work(world);
        const std::vector<double> numbers = work.numbers(count, 2, [&](int64_t item, std::span<double> result) {
          ++done;
          result[0] = static_cast<double>(item), result[1] = 0.1 * static_cast<double>(item * item);
        });
        ASSERT_EQ(std::ssize(numbers), 2 * count);
        for (int64_t item = 0; item < count; ++item) {
          EXPECT_EQ(numbers[static_cast<size_t>(2 * item)], static_cast<double>(item));
          EXPECT_EQ(numbers[static_cast<size_t>(2 * item + 1)], 0.1 * static_cast<double>(item * item));
        }
        const std::vector<std::string> texts = work.texts(count, [](std::span<const int64_t> items) {
          std::vector<std::string> own;
          for (const int64_t item : items) own.push_back(item == 1 ? "" : "item 1 \n" + std::to_string(item));
          return own;
        });
        ASSERT_EQ(std::ssize(texts), count);
        for (int64_t item = 0; item < count; ++item)
          EXPECT_EQ(texts[static_cast<size_t>(item)], item == 1 ? "" : "item 1 \n" + std::to_string(item));
        EXPECT_EQ(work.text([] { return std::string("one text"); }), "one text");
      });
      EXPECT_EQ(done, count);  // by one rank each
    }
}

// A rank that leaves its part alone would keep the others waiting.
TEST(SharedWork, AllRanksLeaveTogether) {
  std::atomic<int> stopped = 0, failed = 0;
  testing::run_ranks(3, [&](Communicator& world) {
    SharedWork work(world);
    try {
      work.numbers(5, 1, [](int64_t item, std::span<double>) {
        if (item == 1) throw Stopped{};
      });
    } catch (const Stopped&) {
      ++stopped;
    }
    failed += error_of([&] { work.text([]() -> std::string { fail_user("no text"); }); }) == "rank 2: no text";
  });
  EXPECT_EQ(stopped, 3);
  EXPECT_EQ(failed, 3);
}
}  // namespace
}  // namespace linnet
