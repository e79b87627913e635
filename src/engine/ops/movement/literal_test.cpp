#include <gtest/gtest.h>
#include "base/error.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "op_harness.h"

namespace linnet {
namespace {
TEST(Literal, GivesItsElementsInEveryType) {
  Graph graph;
  const std::array<float, 5> floats{1, -2.5F, 3, 4, 1e-30F};
  const std::array<int32_t, 3> integers{7, -8, 9};
  graph.output("f", literal(graph, {DType::kF32, {5}}, floats.data()));
  graph.output("i", literal(graph, {DType::kI32, {3, 1}}, integers.data()));
  for (const NamedTensors& outputs : testing::run_everywhere(graph, {})) {
    EXPECT_EQ(outputs.at("f").values(), (std::vector<double>(floats.begin(), floats.end())));
    EXPECT_EQ(outputs.at("i").values(), (std::vector<double>{7, -8, 9}));
  }
}

TEST(Literal, DataThatDoNotFitTheTypeAreRefused) {
  Graph graph;
  EXPECT_THROW(graph.add_one(kLiteral, {}, LiteralAttrs{.type = {DType::kF32, {3}}, .words = {1}}, {}), Error);
}
}  // namespace
}  // namespace linnet
