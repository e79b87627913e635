#include <gtest/gtest.h>
#include <cmath>
#include "engine/ops/pool/pool.h"
#include "op_harness.h"

namespace linnet {
namespace {
TEST(MaxPool, ValuesAndGradients) {
  for (const Shape& x : {Shape{2, 4, 6, 3}, Shape{1, 5, 7, 1}, Shape{3, 2, 2, 17}, Shape{2, 9, 4, 2}})
    for (const auto& [size, stride] : {std::pair{2, 2}, {2, 1}, {1, 2}})
      testing::check_op({.inputs = {{x}}, .build = [size = size, stride = stride](Graph&, const auto& in) {
                           return std::vector{max_pool(in[0], size, stride)};
                         }});
  testing::check_op({.inputs = {{{3, 11, 12, 17}}},
      .build = [](Graph&, const auto& in) { return std::vector{max_pool(in[0], 3, 2)}; },
      .bf16_tolerance = 1e-2});
}

TEST(MaxPool, TheFirstOfEqualsGetsTheGradientAndNanWins) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {1, 2, 4, 1}});
  const std::vector<Tensor> pooled =
      graph.add(kMaxPool, std::array{x}, MaxPoolAttrs{.size = 2, .stride = 2}, SourceLine::current());
  graph.output("y", pooled[0]);
  graph.output("place", pooled[1]);
  const std::vector<float> image{3, 3, 1, NAN, 3, 1, 9, 2};
  NamedTensors inputs;
  inputs["x"] = HostTensor({DType::kF32, {1, 2, 4, 1}}, std::span<const float>(image));
  for (const NamedTensors& out : testing::run_everywhere(graph, inputs)) {
    EXPECT_EQ(out.at("y")[0], 3);
    EXPECT_TRUE(std::isnan(out.at("y")[1]));
    EXPECT_EQ(out.at("place").values(), (std::vector<double>{0, 1}));
  }
}
}  // namespace
}  // namespace linnet
