#include <gtest/gtest.h>
#include <array>
#include <map>
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/quantized/quantized.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/passes/passes.h"

namespace linnet {
namespace {
std::map<std::string, int> labels(Graph graph, bool int8) {
  std::map<std::string, int> found;
  const Graph optimized = optimize(std::move(graph), {.int8 = int8});
  for (const Node& node : optimized.nodes()) ++found[label_of(node)];
  return found;
}

// Two layers, whose gradients are asked for.
Graph layers(int64_t rows, int64_t width) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {rows, width}}), up = graph.input("up", {DType::kF32, {80, width}}),
               down = graph.input("down", {DType::kF32, {width, 80}}), bias = graph.input("bias", {DType::kF32, {80}});
  const Tensor y = matmul(gelu(matmul(x, up, false, true) + bias), down, false, true);
  const std::vector<Tensor> found = gradients(sum_to(square(y), {}), std::array{up, down, x});
  for (size_t i = 0; i < found.size(); ++i) graph.output("gradient " + std::to_string(i), found[i]);
  return graph;
}

TEST(QuantizeProducts, WithWhatIsFusedIntoThemButNotTheGradientsOfWeights) {
  auto found = labels(layers(64, 48), true);
  EXPECT_EQ(found["matmul+bias+gelu+pre_activation+int8"], 1);
  EXPECT_EQ(found["matmul+times_gelu_grad+int8"], 1);
  EXPECT_EQ(found["matmul+int8"], 2);
  EXPECT_EQ(found["matmul"], 2);
  found = labels(layers(64, 48), false);
  EXPECT_EQ(found["matmul+int8"], 0);
  EXPECT_EQ(found["matmul+times_gelu_grad"], 1);
}

TEST(QuantizeProducts, ButNotSmallOnes) {
  EXPECT_EQ(labels(layers(8, 48), true)["matmul+int8"], 0) << "few rows";
  EXPECT_EQ(labels(layers(64, 24), true)["matmul+int8"], 0) << "a narrow weight";
}

// A weight that several products read is rounded once for each form.
TEST(QuantizeProducts, RoundAWeightOnce) {
  Graph graph;
  const Tensor w = graph.input("w", {DType::kF32, {64, 64}}), x = graph.input("x", {DType::kF32, {32, 64}});
  graph.output("a", matmul(relu(matmul(x, w, false, true)), w, false, true));
  graph.output("b", matmul(x, w));
  graph.output("c", matmul(x, relu(x), false, true));  // no weight
  int rounded = 0;
  const Graph optimized = optimize(std::move(graph), {.int8 = true});
  for (const Node& node : optimized.nodes()) rounded += node.op == &kQuantizeWeight;
  EXPECT_EQ(rounded, 2);
}
}  // namespace
}  // namespace linnet
