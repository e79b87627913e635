#include <gtest/gtest.h>
#include <cmath>
#include <limits>
#include "engine/ops/attention/attention.h"
#include "engine/ops/reduce/reduce.h"
#include "op_harness.h"

namespace linnet {
namespace {
TEST(Softmax, ValuesAndGradientsAtManyWidths) {
  for (int64_t width : {1, 3, 16, 37, 255, 300, 768, 1600, 5000, 9000})
    testing::check_op({.inputs = {{.shape = {4, 3, width}, .spread = 5}},
        .build = [](Graph&, const auto& x) { return std::vector{softmax(x[0])}; },
        .bf16_tolerance = 2e-2});
}

TEST(Softmax, MaskedScoresGetNoProbabilityAndNoGradient) {
  testing::check_op({.inputs = {{{2, 2, 4, 6}}, {.shape = {2}, .integer = true, .low = 3, .high = 7}},
      .build = [](Graph&, const auto& x) { return std::vector{softmax(mask_scores(x[0], x[1], true))}; }});
}

TEST(Softmax, ARowThatIsAllMaskedIsZeroAndNanStays) {
  for (const int64_t width : {3, 400, 9000})
    for (const bool nan : {false, true}) {
      Graph graph;
      graph.output("y", softmax(graph.input("x", {DType::kF32, {1, width}})));
      std::vector<float> masked(static_cast<size_t>(width), -std::numeric_limits<float>::infinity());
      if (nan) masked[2] = NAN, masked[1] = 1;
      NamedTensors inputs;
      inputs["x"] = HostTensor({DType::kF32, {1, width}}, std::span<const float>(masked));
      for (const NamedTensors& out : testing::run_everywhere(graph, inputs)) {
        const std::vector<double> y = out.at("y").values();
        EXPECT_TRUE(nan ? std::isnan(y[2]) : y == std::vector<double>(static_cast<size_t>(width), 0.0)) << width;
      }
    }
}
}  // namespace
}  // namespace linnet
