#include <gtest/gtest.h>
#include <cmath>
#include "engine/ops/reduce/reduce.h"
#include "op_harness.h"

namespace linnet {
namespace {
TEST(Argmax, TheFirstOfEqualsAndNanCountsAsLargest) {
  Graph graph;
  graph.output("y", argmax_last(graph.input("x", {DType::kF32, {4, 3}})));
  const std::vector<float> x{1, 5, 5, -INFINITY, -INFINITY, -INFINITY, 2, NAN, 7, -1, -3, -0.5f};
  NamedTensors inputs;
  inputs["x"] = HostTensor({DType::kF32, {4, 3}}, std::span<const float>(x));
  for (const NamedTensors& outputs : testing::run_everywhere(graph, inputs))
    EXPECT_EQ(outputs.at("y").values(), (std::vector<double>{1, 0, 1, 2}));
}

TEST(Argmax, OfLongRows) {
  for (int64_t width : {1, 31, 1000}) {
    Graph graph;
    graph.output("y", argmax_last(graph.input("x", {DType::kF32, {70, width}})));
    NamedTensors inputs;
    inputs["x"] = HostTensor({DType::kF32, {70, width}});
    std::vector<double> expected;
    for (int64_t row = 0; row < 70; ++row) {
      const int64_t location = row * 37 % width;
      for (int64_t j = 0; j < width; ++j)  // -0 and 0 are equal
        inputs["x"].as<float>()[static_cast<size_t>(row * width + j)] = j < location ? -1.0f - static_cast<float>(j)
                                                                        : j % 2      ? 0.0f
                                                                                     : -0.0f;
      expected.push_back(static_cast<double>(location));
    }
    for (const NamedTensors& outputs : testing::run_everywhere(graph, inputs))
      EXPECT_EQ(outputs.at("y").values(), expected) << width;
  }
}
}  // namespace
}  // namespace linnet
