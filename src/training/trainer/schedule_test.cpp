#include "training/trainer/schedule.h"
#include <gtest/gtest.h>
#include <cmath>

namespace linnet {
namespace {
TEST(Schedule, WarmupIsLinearAndReachesThePeak) {
  for (auto kind :
      {Schedule::Kind::kConstant, Schedule::Kind::kLinear, Schedule::Kind::kCosine, Schedule::Kind::kInverseSqrt}) {
    const Schedule schedule{.kind = kind, .peak = 2, .warmup_steps = 10, .max_steps = 110};
    EXPECT_DOUBLE_EQ(learning_rate(schedule, 1), 0.2);
    EXPECT_DOUBLE_EQ(learning_rate(schedule, 5), 1.0);
    EXPECT_DOUBLE_EQ(learning_rate(schedule, 10), 2.0);
  }
}

TEST(Schedule, AShortRunReachesThePeakAndComesDownAgain) {
  for (auto kind : {Schedule::Kind::kLinear, Schedule::Kind::kCosine, Schedule::Kind::kInverseSqrt}) {
    const Schedule schedule{.kind = kind, .peak = 2, .warmup_steps = 1000, .max_steps = 100};
    EXPECT_DOUBLE_EQ(learning_rate(schedule, 5), 0.4);
    EXPECT_DOUBLE_EQ(learning_rate(schedule, 25), 2);
    EXPECT_LE(learning_rate(schedule, 100), 1);
  }
}

TEST(Schedule, EachWayDown) {
  Schedule schedule{.kind = Schedule::Kind::kLinear, .peak = 2, .final = 1, .warmup_steps = 10, .max_steps = 110};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 60), 1.5);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 110), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 500), 1.0);
  schedule.kind = Schedule::Kind::kCosine;
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 60), 1.5);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 110), 1.0);
  EXPECT_GT(learning_rate(schedule, 35), 1.75);
  schedule.kind = Schedule::Kind::kInverseSqrt;
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 40), 1.0);
  schedule.kind = Schedule::Kind::kConstant;
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 99), 2.0);
}

TEST(Schedule, WithoutWarmupTheFirstStepIsAtThePeak) {
  EXPECT_DOUBLE_EQ(learning_rate({.kind = Schedule::Kind::kInverseSqrt, .peak = 3}, 1), 3);
  EXPECT_DOUBLE_EQ(learning_rate({.kind = Schedule::Kind::kConstant, .peak = 3}, 1), 3);
}
}  // namespace
}  // namespace linnet
