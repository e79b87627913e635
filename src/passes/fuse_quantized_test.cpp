#include <gtest/gtest.h>

#include <array>

#include "ops/embedding/embedding.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/quantized/quantized.h"
#include "ops/reduce/reduce.h"
#include "passes/gradient.h"
#include "passes/passes.h"

namespace linnet {
namespace {

int count(const Graph& graph, const char* op) {
  int found = 0;
  for (const Node& node : graph.nodes()) found += std::string_view(node.op->name) == op;
  return found;
}

Tensor weight(Graph& graph, const PackedShape& shape) {
  return dequantize(graph.input("packed", {DType::kU8, {static_cast<int64_t>(shape.bytes())}}), shape);
}

TEST(FuseQuantized, ProductsAndLookupsReadThePackedWeight) {
  Graph graph;
  const PackedShape shape{WeightFormat::kInt8, 40, 64};
  const Tensor w = weight(graph, shape), bias = graph.input("bias", {DType::kF32, {40}});
  const Tensor ids = graph.input("ids", {DType::kI32, {2, 3}});
  const Tensor x = embedding(w, ids);
  graph.output("y", relu(matmul(x, w, false, true) + bias));
  const Graph fused = optimize(std::move(graph));
  EXPECT_EQ(count(fused, "dequantize"), 0);
  EXPECT_EQ(count(fused, "quantized_embedding"), 1);
  ASSERT_EQ(count(fused, "quantized_matmul"), 1);
  EXPECT_EQ(fused.node_count(), 2) << "bias and relu are part of the product";
}

TEST(FuseQuantized, OtherReadersComputeWithTheNumbers) {
  Graph graph;
  const PackedShape shape{WeightFormat::kInt8Blocks, 64, 64};
  const Tensor w = weight(graph, shape), x = graph.input("x", {DType::kF32, {5, 64}});
  graph.output("y", w * 2.0);
  graph.output("z", matmul(x, w, false, true));
  const Graph fused = optimize(std::move(graph));
  EXPECT_EQ(count(fused, "dequantize"), 1);
  EXPECT_EQ(count(fused, "quantized_matmul"), 1);
}

// A layer whose weight is frozen, forward and backward: the weight is never whole in fp32.
TEST(FuseQuantized, TheBackwardPassReadsThePackedWeight) {
  Graph graph;
  const PackedShape shape{WeightFormat::kBf16, 40, 64};
  const Tensor w = weight(graph, shape), x = graph.input("x", {DType::kF32, {5, 64}});
  const Tensor bias = graph.input("bias", {DType::kF32, {40}});
  const Tensor y = gelu(matmul(gelu(x), w, false, true) + bias);
  graph.output("dx", gradients(sum_to(square(y), {}), std::array{x})[0]);
  const Graph fused = optimize(std::move(graph));
  EXPECT_EQ(count(fused, "dequantize"), 0);
  EXPECT_EQ(count(fused, "matmul"), 0);
  EXPECT_EQ(count(fused, "quantized_matmul"), 2);
}

}  // namespace
}  // namespace linnet
