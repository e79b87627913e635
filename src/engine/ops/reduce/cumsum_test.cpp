#include <gtest/gtest.h>
#include "engine/ops/reduce/reduce.h"
#include "op_harness.h"

namespace linnet {
namespace {
TEST(Cumsum, ValuesAndGradients) {
  for (const bool reverse : {false, true})
    for (const auto& [shape, axis] :
        {std::pair<Shape, int>{{7}, 0}, {{3, 5}, 1}, {{3, 5}, 0}, {{2, 9, 130}, 1}, {{2, 3, 4}, -1}, {{40, 1000}, -1}})
      testing::check_op({.inputs = {{shape}},
          .build = [=, axis = axis](Graph&, const auto& x) { return std::vector{cumsum(x[0], axis, reverse)}; }});
}

TEST(Cumsum, SumsFromEitherEnd) {
  for (const bool reverse : {false, true}) {
    Graph graph;
    graph.output("y", cumsum(graph.input("x", {DType::kF32, {2, 3}}), 1, reverse));
    NamedTensors inputs;
    const std::vector<float> x{1, 2, 3, 4, 5, 6};
    inputs["x"] = HostTensor({DType::kF32, {2, 3}}, std::span<const float>(x));
    for (const NamedTensors& outputs : testing::run_everywhere(graph, inputs))
      EXPECT_EQ(outputs.at("y").values(),
          (reverse ? std::vector<double>{6, 5, 3, 15, 11, 6} : std::vector<double>{1, 3, 6, 4, 9, 15}));
  }
}
}  // namespace
}  // namespace linnet
