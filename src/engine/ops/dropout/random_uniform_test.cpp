#include <gtest/gtest.h>
#include "engine/ops/dropout/dropout.h"
#include "op_harness.h"

namespace linnet {
namespace {
std::vector<double> drawn(int32_t step, uint64_t site, int64_t count = 10001) {
  Graph graph;
  graph.output("y", random_uniform(graph.input("r", {DType::kI32, {4}}), {DType::kF32, {count}}, site));
  const std::vector<int32_t> random{7, 0, step, 0};
  NamedTensors inputs;
  inputs["r"] = HostTensor({DType::kI32, {4}}, std::span<const int32_t>(random));
  const auto everywhere = testing::run_everywhere(graph, inputs);
  for (const NamedTensors& outputs : everywhere) EXPECT_EQ(outputs.at("y").values(), everywhere[0].at("y").values());
  return everywhere[0].at("y").values();
}

TEST(RandomUniform, FillsTheUnitIntervalEvenly) {
  const std::vector<double> values = drawn(1, 5);
  double sum = 0, squares = 0;
  std::vector<int> tenths(10);
  for (const double value : values) {
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 1);
    sum += value, squares += value * value, ++tenths[static_cast<size_t>(10 * value)];
  }
  const auto count = static_cast<double>(values.size());
  EXPECT_NEAR(sum / count, 0.5, 0.012);
  EXPECT_NEAR(squares / count, 1.0 / 3, 0.012);
  for (const int tenth : tenths) EXPECT_NEAR(tenth, count / 10, 130);  // more than four standard deviations
}

TEST(RandomUniform, DiffersByStepAndSiteAndRepeatsOtherwise) {
  EXPECT_EQ(drawn(1, 5), drawn(1, 5));
  EXPECT_NE(drawn(1, 5), drawn(2, 5));
  EXPECT_NE(drawn(1, 5), drawn(1, 6));
}
}  // namespace
}  // namespace linnet
