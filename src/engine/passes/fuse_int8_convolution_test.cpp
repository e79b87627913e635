#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "engine/ops/conv2d/conv2d.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/quantized/quantized_conv2d.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/passes/passes.h"

namespace linnet {
namespace {

constexpr int64_t kChannels = 16;
const TensorType kImages{DType::kF32, {2, 8, 8, kChannels}}, kRow{DType::kF32, {kChannels}};

// A layer of filters in int8 whose input has been calibrated; without a scale each image finds its own.
Tensor layer(Graph& graph, Tensor x, float input_scale) {
  const PackedShape shape{WeightFormat::kInt8, kChannels, 9 * kChannels};
  const std::string name = "filters " + std::to_string(graph.inputs().size());
  const Tensor packed = graph.input(name, {DType::kU8, {static_cast<int64_t>(shape.bytes())}});
  const Tensor filters = dequantize(packed, shape, DType::kF32, input_scale);
  return conv2d(x, reshape(filters, {kChannels, 3, 3, kChannels}), 1, 1);
}

std::string fused(const std::function<void(Graph&, Tensor x, Tensor bias)>& build) {
  Graph graph;
  build(graph, graph.input("x", kImages), graph.input("bias", kRow));
  std::string text;
  const Graph optimized = optimize(std::move(graph));
  for (const Node& node : optimized.nodes()) text += (text.empty() ? "" : ", ") + label_of(node);
  return text;
}

TEST(FuseInt8Convolution, HandsOnCodesWhereScalesAreKnown) {
  EXPECT_EQ(fused([](Graph& graph, Tensor x, Tensor bias) {
              graph.output("y", layer(graph, relu(layer(graph, x, 0.1F) + bias), 0.2F));
            }),
            "quantized_conv2d+bias+relu+codes, quantized_conv2d");
  EXPECT_EQ(fused([](Graph& graph, Tensor x, Tensor bias) {
              graph.output("y", layer(graph, relu(layer(graph, x, 0) + bias), 0));
            }),
            "quantized_conv2d+bias+relu, quantized_conv2d");
  // Two that would round it alike; then two that would not.
  const auto read_twice = [](float one, float other) {
    return fused([=](Graph& graph, Tensor x, Tensor) {
      const Tensor y = layer(graph, x, 0.1F);
      graph.output("a", layer(graph, y, one)), graph.output("b", layer(graph, y, other));
    });
  };
  EXPECT_EQ(read_twice(0.2F, 0.2F), "quantized_conv2d+codes, quantized_conv2d, quantized_conv2d");
  EXPECT_EQ(read_twice(0.2F, 0.3F), "quantized_conv2d, quantized_conv2d, quantized_conv2d");
}

// The sum of a residual block reads the codes that the block's first convolution does.
TEST(FuseInt8Convolution, AddsCodesInResidualBlocks) {
  EXPECT_EQ(fused([](Graph& graph, Tensor x, Tensor) {
              const Tensor in = relu(layer(graph, x, 0.1F));
              const Tensor out = relu(layer(graph, relu(layer(graph, in, 0.2F)), 0.3F) + in);
              graph.output("y", sum_to(out, {}));
            }),
            "quantized_conv2d+relu+codes, quantized_conv2d+relu+codes, quantized_conv2d+residual+relu, reduce");
}

TEST(FuseInt8Convolution, KeepsFloatsForOtherReaders) {
  EXPECT_EQ(fused([](Graph& graph, Tensor x, Tensor) {
              const Tensor y = layer(graph, x, 0.1F);
              graph.output("y", layer(graph, y, 0.2F)), graph.output("sum", sum_to(y, {}));
            }),
            "quantized_conv2d, quantized_conv2d, reduce");
}

// What is nowhere negative has 255 steps up to the bound that 127 steps reach otherwise.
TEST(FuseInt8Convolution, UsesTheWholeByteBehindReLU) {
  Graph graph;
  const Tensor x = graph.input("x", kImages);
  graph.output("y", layer(graph, relu(layer(graph, x, 0.1F)), 0.2F));
  const Graph optimized = optimize(std::move(graph));
  const auto& first = optimized.node(0).attrs.as<QuantizedConv2dAttrs>();
  const auto& second = optimized.node(1).attrs.as<QuantizedConv2dAttrs>();
  EXPECT_EQ(first.rounding.zero, 128);
  EXPECT_EQ(first.rounding.scale, 0.1F);
  EXPECT_EQ(second.rounding.zero, 0);
  EXPECT_FLOAT_EQ(second.rounding.scale, 0.2F * 127 / 255);
  EXPECT_EQ(first.result_rounding.scale, second.rounding.scale);
}

}  // namespace
}  // namespace linnet
