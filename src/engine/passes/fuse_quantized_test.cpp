#include <gtest/gtest.h>
#include <array>
#include <functional>
#include <string>
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/quantized/quantized.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/passes/passes.h"

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

// A layer whose input has been calibrated; without a scale each row finds its own.
Tensor layer(Graph& graph, Tensor x, float input_scale) {
  const PackedShape shape{WeightFormat::kInt8, 64, 64};
  const std::string name = "weight " + std::to_string(graph.inputs().size());
  const Tensor packed = graph.input(name, {DType::kU8, {static_cast<int64_t>(shape.bytes())}});
  return matmul(x, dequantize(packed, shape, DType::kF32, input_scale), false, true);
}

std::string fused(const std::function<void(Graph&, Tensor x, Tensor bias)>& build) {
  Graph graph;
  build(graph, graph.input("x", {DType::kF32, {2, 5, 64}}), graph.input("bias", {DType::kF32, {64}}));
  std::string text;
  const Graph optimized = optimize(std::move(graph));
  for (const Node& node : optimized.nodes()) text += (text.empty() ? "" : ", ") + label_of(node);
  return text;
}

TEST(FuseQuantized, HandsOnCodesWhereScalesAreKnown) {
  EXPECT_EQ(fused([](Graph& graph, Tensor x, Tensor bias) {
    graph.output("y", layer(graph, gelu(layer(graph, x, 0.1F) + bias), 0.2F));
  }),
      "matmul+bias+gelu+int8+codes, matmul+int8");
  EXPECT_EQ(fused([](Graph& graph, Tensor x, Tensor bias) {
    graph.output("y", layer(graph, gelu(layer(graph, x, 0) + bias), 0));
  }),
      "matmul+bias+gelu+int8, matmul+int8");
  // Two that would round it alike; then two that would not.
  const auto read_twice = [](float one, float other) {
    return fused([=](Graph& graph, Tensor x, Tensor) {
      const Tensor y = layer(graph, x, 0.1F);
      graph.output("a", layer(graph, y, one)), graph.output("b", layer(graph, y, other));
    });
  };
  EXPECT_EQ(read_twice(0.2F, 0.2F), "matmul+int8+codes, matmul+int8, matmul+int8");
  EXPECT_EQ(read_twice(0.2F, 0.3F), "matmul+int8, matmul+int8, matmul+int8");
}

TEST(FuseQuantized, KeepsFloatsForOtherReaders) {
  EXPECT_EQ(fused([](Graph& graph, Tensor x, Tensor) {
    const Tensor y = layer(graph, x, 0.1F);
    graph.output("y", layer(graph, y, 0.2F)), graph.output("sum", sum_to(y, {}));
  }),
      "matmul+int8, matmul+int8, reduce");
  EXPECT_EQ(fused([](Graph& graph, Tensor x, Tensor) {
    const Tensor y = layer(graph, x, 0.1F);
    graph.output("y", y), graph.output("z", layer(graph, y, 0.2F));
  }),
      "matmul+int8, matmul+int8");
}
}  // namespace
}  // namespace linnet
