#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include "base/error.h"
#include "models/nn/activation_observer.h"

namespace linnet {
namespace {
std::vector<float> normal_values(size_t count) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

TEST(MagnitudeHistogram, TheBoundsOfANormalDistribution) {
  MagnitudeHistogram histogram;
  const std::vector<float> values = normal_values(400'000);
  histogram.add(values);
  float most = 0;
  for (const float value : values) most = std::max(most, std::fabs(value));
  EXPECT_EQ(histogram.bound(CalibrationMethod::kMinMax), most);
  EXPECT_NEAR(histogram.percentile(0.9999), 3.89, 0.1);
  EXPECT_NEAR(histogram.percentile(0.5), 0.6745, 0.01);
  EXPECT_EQ(histogram.percentile(1), most);
  // Hardly anything is worth clipping, but the few values far out are.
  EXPECT_GT(histogram.least_divergence(), 3);
  EXPECT_LE(histogram.least_divergence(), most);
}

TEST(MagnitudeHistogram, OneValueFarOutIsClippedByAllButMinMax) {
  MagnitudeHistogram histogram;
  histogram.add(normal_values(400'000));
  histogram.add(std::vector<float>{-1000});
  EXPECT_EQ(histogram.bound(CalibrationMethod::kMinMax), 1000);
  EXPECT_LT(histogram.bound(CalibrationMethod::kPercentile), 5);
  EXPECT_LT(histogram.bound(CalibrationMethod::kEntropy), 100);
}

// Widening merges bins, so the order in which values come does not matter.
TEST(MagnitudeHistogram, TheOrderOfValuesDoesNotMatter) {
  std::vector<float> values = normal_values(10'000);
  for (size_t i = 0; i < values.size(); ++i) values[i] *= std::pow(1.001F, static_cast<float>(i));
  MagnitudeHistogram forward, backward;
  for (const float value : values) forward.add({&value, 1});
  std::ranges::reverse(values);
  backward.add(values);
  for (const double share : {0.1, 0.9, 0.999}) EXPECT_EQ(forward.percentile(share), backward.percentile(share));
}

TEST(MagnitudeHistogram, ZerosAloneAndWhatIsNoNumber) {
  MagnitudeHistogram histogram;
  EXPECT_EQ(histogram.bound(CalibrationMethod::kPercentile), 0);
  histogram.add(std::vector<float>(100));
  for (const char* name : kEnumNames<CalibrationMethod>)
    EXPECT_EQ(histogram.bound(calibration_method(name)), 0) << name;
  EXPECT_THROW(histogram.add(std::vector<float>{1, std::numeric_limits<float>::quiet_NaN()}), Error);
  EXPECT_THROW(histogram.add(std::vector<float>{-std::numeric_limits<float>::infinity()}), Error);
  EXPECT_THROW(calibration_method("mean"), Error);
}
}  // namespace
}  // namespace linnet
