#include "ops/softmax/softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "op_harness.h"
#include "ops/attention/attention.h"

namespace linnet {
namespace {

TEST(Softmax, ValuesAndGradientsAtManyWidths) {
  for (int64_t width : {1, 3, 16, 37, 255, 300, 768, 1600, 5000, 9000})
    testing::check_op({.inputs = {{.shape = {4, 3, width}, .spread = 5}},
                       .build = [](Graph&, const auto& x) { return std::vector{softmax(x[0])}; },
                       .bf16_tolerance = 2e-2});
}

TEST(Softmax, MaskedScoresGetNoProbabilityAndNoGradient) {
  testing::check_op(
      {.inputs = {{{2, 2, 4, 6}}, {.shape = {2}, .integer = true, .low = 3, .high = 7}},
       .build = [](Graph&, const auto& x) { return std::vector{softmax(mask_scores(x[0], x[1], true))}; }});
}

TEST(Softmax, ARowThatIsAllMaskedIsZero) {
  Graph graph;
  graph.output("y", softmax(graph.input("x", {DType::kF32, {1, 3}})));
  const std::vector<float> masked(3, -std::numeric_limits<float>::infinity());
  NamedTensors inputs;
  inputs["x"] = HostTensor({DType::kF32, {1, 3}}, std::span<const float>(masked));
  for (KernelSet kernels : {KernelSet::kFast, KernelSet::kReference})
    EXPECT_EQ(interpret(graph, inputs, {.kernels = kernels}).outputs.at("y").values(), std::vector<double>(3, 0.0));
}

}  // namespace
}  // namespace linnet
