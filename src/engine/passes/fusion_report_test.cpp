#include <gtest/gtest.h>
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/passes/passes.h"

namespace linnet {
namespace {
TEST(FusionReport, CountsWhatEachPassMade) {
  Graph graph;
  Tensor x = graph.input("x", {DType::kF32, {4, 8}});
  const Tensor w = graph.input("w", {DType::kF32, {8, 8}}), b = graph.input("b", {DType::kF32, {8}});
  for (int layer = 0; layer < 3; ++layer) x = relu(matmul(x, w, false, true) + b);
  graph.output("y", reshape(exp(square(x) * 0.5), {32}));
  std::vector<PassReport> reports;
  optimize(std::move(graph), {}, &reports);
  EXPECT_EQ(fusion_report(reports),
      "fuse_epilogue: matmul+bias+relu x 3\n"
      "fuse_pointwise: square+mul+exp x 1\n"
      "make_views: 1 of 8 values are views\n");
}
}  // namespace
}  // namespace linnet
