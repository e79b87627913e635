#include "ops/argmax/argmax.h"

#include <gtest/gtest.h>

#include <cmath>

#include "exec/interpreter.h"

namespace linnet {
namespace {

TEST(Argmax, TheFirstOfEqualsAndNanCountsAsLargest) {
  Graph graph;
  graph.output("y", argmax_last(graph.input("x", {DType::kF32, {4, 3}})));
  const std::vector<float> x{1, 5, 5, -INFINITY, -INFINITY, -INFINITY, 2, NAN, 7, -1, -3, -0.5f};
  NamedTensors inputs;
  inputs["x"] = HostTensor({DType::kF32, {4, 3}}, std::span<const float>(x));
  EXPECT_EQ(interpret(graph, inputs).outputs.at("y").values(), (std::vector<double>{1, 0, 1, 2}));
}

}  // namespace
}  // namespace linnet
