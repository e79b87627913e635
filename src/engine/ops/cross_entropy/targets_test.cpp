// mask_targets, count_targets and one_hot by all their kernels.
#include <gtest/gtest.h>
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/movement/movement.h"
#include "op_harness.h"

namespace linnet {
namespace {
TEST(Targets, AreMaskedAndCounted) {
  for (const auto& [batch, length] : {std::pair{1, 1}, {3, 100}, {5, 9000}}) {
    Graph graph;
    const Tensor masked =
        mask_targets(graph.input("t", {DType::kI32, {batch, length}}), graph.input("n", {DType::kI32, {batch}}));
    graph.output("masked", masked);
    graph.output("count", count_targets(masked, DType::kF32));
    NamedTensors inputs;
    inputs["t"] = HostTensor({DType::kI32, {batch, length}});
    inputs["n"] = HostTensor({DType::kI32, {batch}});
    for (int32_t& n : inputs["n"].as<int32_t>()) n = length - length / 3;
    for (const NamedTensors& out : testing::run_everywhere(graph, inputs)) {
      EXPECT_EQ(out.at("count")[0], batch * (length - length / 3));
      for (int64_t i = 0; i < batch * length; ++i)
        ASSERT_EQ(out.at("masked")[i], i % length < length - length / 3 ? 0 : -1);
    }
  }
}

TEST(Targets, BecomeRowsWithOneOne) {
  Graph graph;
  graph.output("y", one_hot(graph.input("t", {DType::kI32, {3}}), 300, DType::kF32));
  NamedTensors inputs;
  inputs["t"] = HostTensor({DType::kI32, {3}}, std::span<const int32_t>(std::array{299, -1, 0}));
  for (const NamedTensors& out : testing::run_everywhere(graph, inputs))
    for (int64_t i = 0; i < 900; ++i) EXPECT_EQ(out.at("y")[i], i == 299 || i == 600);
}
}  // namespace
}  // namespace linnet
