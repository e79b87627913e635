#include <gtest/gtest.h>
#include <array>
#include <atomic>
#include "comm_testing.h"
#include "distributed/comm/agreement.h"

namespace linnet {
namespace {
// Clocks that count how often any of them was read: an answer takes at most the readings of all ranks.
TEST(ClockOffset, IsFoundForEveryRank) {
  constexpr std::array<int64_t, 3> kAhead{5000, 1000000, -300000};
  std::atomic<int64_t> readings = 0;
  testing::run_ranks(3, [&](Communicator& world) {
    const auto rank = static_cast<size_t>(world.rank());
    const int64_t offset = clock_offset(world, [&] { return kAhead[rank] + readings++; });
    EXPECT_NEAR(static_cast<double>(offset), static_cast<double>(kAhead[rank] - kAhead[0]), 200) << rank;
  });
}

TEST(ClockOffset, OfOneRankIsNothing) {
  EXPECT_EQ(clock_offset(single_process(), [] { return int64_t{7}; }), 0);
}
}  // namespace
}  // namespace linnet
