#include <gtest/gtest.h>
#include <cmath>
#include "base/error.h"
#include "training/run/sweep.h"

namespace linnet {
namespace {
// Falls between 1e-4 and 1e-2 and rises behind it.
std::vector<RateTrial> trials() {
  std::vector<RateTrial> made;
  for (int i = 0; i <= 60; ++i) {
    const double location = -6 + 0.1 * i, rate = std::pow(10, location);
    const double fallen = 3 / (1 + std::exp(-4 * (location + 3))), risen = location > -1.5 ? 4 * (location + 1.5) : 0;
    made.push_back({rate, 5 - fallen + risen});
  }
  return made;
}

TEST(RateRange, SuggestsWhereTheLossFallsFastest) {
  const RateAnswer answer = judge_rates(trials(), false);
  EXPECT_NEAR(std::log10(answer.suggestion), -3, 0.3);
  EXPECT_NEAR(std::log10(answer.highest), -1.5, 0.3);
  const std::string chart = rate_chart(answer);
  EXPECT_NE(chart.find("try --lr "), chart.npos);
  EXPECT_EQ(std::count(chart.begin(), chart.end(), '\n'), 12 + 4);
}

TEST(RateRange, ALossThatNeverFallsHasNoSuggestion) {
  std::vector<RateTrial> flat;
  for (int i = 0; i < 20; ++i) flat.push_back({std::pow(10, -6 + 0.1 * i), 5.0 + 0.01 * i});
  EXPECT_EQ(judge_rates(flat, false).suggestion, 0);
  EXPECT_NE(rate_chart(judge_rates(flat, false)).find("did not fall"), std::string::npos);
  EXPECT_NE(rate_chart(judge_rates({}, true)).find("lower rate"), std::string::npos);
}

// Losses of batches differ; the steepest of their differences is no answer.
TEST(RateRange, NoiseIsNoFall) {
  std::vector<RateTrial> noise;
  for (int i = 0; i < 60; ++i) noise.push_back({std::pow(10, -6 + 0.1 * i), 5.0 + 0.03 * std::sin(3.7 * i) + 0.01 * i});
  EXPECT_EQ(judge_rates(noise, false).suggestion, 0);
  EXPECT_NE(rate_chart(judge_rates(noise, false)).find("did not fall"), std::string::npos);
}

TEST(RateRange, ReadsTwoRatesAndNamesMistakes) {
  EXPECT_EQ(parse_rate_range("1e-6:1").from, 1e-6);
  EXPECT_EQ(parse_rate_range("1e-6:0.5").to, 0.5);
  for (const char* bad : {"", "1e-6", "1:1", "1:1e-6", "0:1", "a:1", "1e-6:", "-1:1", "1:nan"})
    EXPECT_THROW(parse_rate_range(bad), Error) << bad;
}
}  // namespace
}  // namespace linnet
