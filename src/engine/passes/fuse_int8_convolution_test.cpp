#include <gtest/gtest.h>
#include <functional>
#include <vector>
#include "engine/ops/conv2d/conv2d.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/quantized/quantized.h"
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

// What becomes of a graph of such layers.
struct Fused {
  std::vector<bool> gives_codes;  // by convolution in int8: whether its result is the codes that its readers take
  bool adds_codes = false;        // a convolution adds a residual that is codes
  int others = 0;                 // nodes that are no such convolutions
};

Fused fused(const std::function<void(Graph&, Tensor x, Tensor bias)>& build) {
  Graph graph;
  build(graph, graph.input("x", kImages), graph.input("bias", kRow));
  const Graph optimized = optimize(std::move(graph));
  Fused found;
  for (const Node& node : optimized.nodes()) {
    if (node.op != &kQuantizedConv2d) {
      ++found.others;
      continue;
    }
    const auto& attrs = node.attrs.as<QuantizedConv2dAttrs>();
    found.gives_codes.push_back(optimized.value(node.out[0]).type.dtype == DType::kU8);
    if (attrs.residual) found.adds_codes |= optimized.value(node.in[attrs.residual_at()]).type.dtype == DType::kU8;
  }
  return found;
}

using Codes = std::vector<bool>;

TEST(FuseInt8Convolution, HandsOnCodesWhereScalesAreKnown) {
  const auto two_layers = [](float one, float other) {
    return fused([=](Graph& graph, Tensor x, Tensor bias) {
      graph.output("y", layer(graph, relu(layer(graph, x, one) + bias), other));
    });
  };
  const Fused known = two_layers(0.1F, 0.2F), unknown = two_layers(0, 0);
  EXPECT_EQ(known.gives_codes, (Codes{true, false}));
  EXPECT_EQ(unknown.gives_codes, (Codes{false, false}));
  EXPECT_EQ(known.others + unknown.others, 0);  // bias and ReLU are part of the convolutions
  // Two that would round it alike; then two that would not.
  const auto read_twice = [](float one, float other) {
    return fused([=](Graph& graph, Tensor x, Tensor) {
      const Tensor y = layer(graph, x, 0.1F);
      graph.output("a", layer(graph, y, one)), graph.output("b", layer(graph, y, other));
    });
  };
  EXPECT_EQ(read_twice(0.2F, 0.2F).gives_codes, (Codes{true, false, false}));
  EXPECT_EQ(read_twice(0.2F, 0.3F).gives_codes, (Codes{false, false, false}));
}

// The sum of a residual block reads the codes that the block's first convolution does.
TEST(FuseInt8Convolution, AddsCodesInResidualBlocks) {
  const Fused block = fused([](Graph& graph, Tensor x, Tensor) {
    const Tensor in = relu(layer(graph, x, 0.1F));
    const Tensor out = relu(layer(graph, relu(layer(graph, in, 0.2F)), 0.3F) + in);
    graph.output("y", sum_to(out, {}));
  });
  EXPECT_EQ(block.gives_codes, (Codes{true, true, false}));
  EXPECT_TRUE(block.adds_codes);
  EXPECT_EQ(block.others, 1);  // the sum of all elements
}

TEST(FuseInt8Convolution, KeepsFloatsForOtherReaders) {
  const Fused read = fused([](Graph& graph, Tensor x, Tensor) {
    const Tensor y = layer(graph, x, 0.1F);
    graph.output("y", layer(graph, y, 0.2F)), graph.output("sum", sum_to(y, {}));
  });
  EXPECT_EQ(read.gives_codes, (Codes{false, false}));
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
