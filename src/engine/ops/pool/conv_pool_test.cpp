#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include "engine/kernels/conv/pool.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/pool/pool.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/passes/passes.h"
#include "error_of.h"
#include "op_harness.h"

namespace linnet {
namespace {
struct Sizes {
  int64_t images, height, width, channels, filters;
};

void check(const Sizes& s) {
  SCOPED_TRACE((Shape{s.images, s.height, s.width, s.channels, s.filters}).text());
  testing::check_op({.inputs = {{{s.images, s.height, s.width, s.channels}},
                         {.shape = {s.filters, 3, 3, s.channels}, .full = true}, {.shape = {s.filters}, .full = true}},
      .build = [](Graph&, const auto& x) { return std::vector{conv_relu_pool(x[0], x[1], x[2])}; },
      .bf16_tolerance = 2e-2});
}

TEST(ConvReluPool, ValuesAndGradientsOfGreyImages) {
  for (const Sizes& s :
      {Sizes{1, 2, 2, 1, 1}, {3, 4, 6, 1, 16}, {2, 28, 28, 1, 16}, {2, 5, 7, 1, 3}, {1, 6, 40, 1, 37}})
    check(s);
}

TEST(ConvReluPool, ValuesAndGradientsOfManyChannels) {
  for (const Sizes& s : {Sizes{2, 4, 4, 3, 5}, {1, 6, 4, 16, 16}, {2, 3, 5, 20, 33}, {1, 14, 14, 16, 32}}) check(s);
}

TEST(ConvReluPool, ManyImages) { check({70, 4, 4, 1, 16}); }

// Several parts of the sums, images cut into bands. Not on the CPU alone: among so many windows one is so close to
// another choice that differences are none.
TEST(ConvReluPool, ManyAndLargeImagesOnADevice) {
  if (testing::tested_backend() == nullptr) GTEST_SKIP();
  for (const Sizes& s : {Sizes{600, 4, 4, 1, 16}, {1300, 4, 4, 1, 16}, {1, 40, 300, 1, 3}}) check(s);
}

// Images have no gradient, so that on a device, too, the weights' gradient computes that of the pooled images itself.
TEST(ConvReluPool, UnderALinearLayer) {
  for (const Sizes& s : {Sizes{9, 8, 12, 1, 16}, {700, 4, 4, 2, 5}}) {
    const int64_t width = s.height / 2 * (s.width / 2) * s.filters;
    testing::check_op(
        {.inputs = {{.shape = {s.images, s.height, s.width, s.channels}, .low = 0, .high = 256, .byte = true},
             {{s.filters, 3, 3, s.channels}}, {{s.filters}}, {{10, width}}},
            .build = [=](Graph&, const auto& x) {
              const Tensor pooled = conv_relu_pool(x[0], x[1], x[2], pixel_scaling(s.channels));
              return std::vector{matmul(reshape(pooled, {s.images, width}), x[3], false, true)};
            }});
  }
}

TEST(ConvReluPool, BytesAreScaledBeforeTheyArePadded) {
  for (int64_t channels : {1, 3}) {
    const PixelScaling scaling =
        channels == 1 ? pixel_scaling(1, {0.13}, {0.3}) : pixel_scaling(3, {0.1, 0.5, 0.6}, {0.2, 0.4, 0.3});
    testing::check_op(
        {.inputs = {{.shape = {3, 6, 8, channels}, .low = 0, .high = 256, .byte = true}, {{7, 3, 3, channels}}, {{7}}},
            .build = [&](Graph&, const auto& x) { return std::vector{conv_relu_pool(x[0], x[1], x[2], scaling)}; }});
  }
}

// Values and places of one channel and one filter that returns the image.
struct Result {
  std::vector<double> y, which;
};
Result pool_of(const std::vector<float>& image, Shape shape, KernelSet kernels) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, shape}), w = graph.input("w", {DType::kF32, {1, 3, 3, 1}});
  const Tensor bias = graph.input("b", {DType::kF32, {1}});
  const auto out = graph.add(kConvReluPool, std::array{x, w, bias}, ConvReluPoolAttrs{}, SourceLine::current());
  graph.output("y", out[0]);
  graph.output("which", out[1]);
  const std::vector<float> middle{0, 0, 0, 0, 1, 0, 0, 0, 0}, zero{0};
  NamedTensors inputs;
  inputs["x"] = HostTensor({DType::kF32, shape}, std::span<const float>(image));
  inputs["w"] = HostTensor({DType::kF32, {1, 3, 3, 1}}, std::span<const float>(middle));
  inputs["b"] = HostTensor({DType::kF32, {1}}, std::span<const float>(zero));
  const auto outputs = interpret(graph, inputs, {.kernels = kernels}).outputs;
  return {outputs.at("y").values(), outputs.at("which").values()};
}

TEST(ConvReluPool, FirstOfEqualsDeadWindowsAndOddSizes) {
  for (KernelSet kernels : {KernelSet::kFast, KernelSet::kReference}) {
    //               window 0: all equal | all negative | zero      | dropped column
    const std::vector<float> image{2, 2, -1, -1, 0, -1, 9, 2, 2, -1, -1, -1, -1, 9, 9, 9, 9, 9, 9, 9, 9};
    const Result result = pool_of(image, {1, 3, 7, 1}, kernels);
    EXPECT_EQ(result.y, (std::vector<double>{2, 0, 0}));
    EXPECT_EQ(result.which, (std::vector<double>{0, kDeadWindow, kDeadWindow}));
  }
}

TEST(ConvReluPool, NanAndInfinityReachTheResult) {
  for (KernelSet kernels : {KernelSet::kFast, KernelSet::kReference}) {
    std::vector<float> image(2 * 8, 1.0f);
    image[8 + 1] = NAN;  // 0 * NaN is NaN: the windows around it see it
    Result result = pool_of(image, {1, 2, 8, 1}, kernels);
    EXPECT_TRUE(std::isnan(result.y[0]) && std::isnan(result.y[1]));
    EXPECT_EQ(result.y[2], 1);
    EXPECT_EQ(result.y[3], 1);
    // An infinity under the filter's one, where no zero of the filter meets it.
    Graph graph;
    const Tensor x = graph.input("x", {DType::kF32, {1, 2, 2, 1}}), w = graph.input("w", {DType::kF32, {1, 3, 3, 1}});
    graph.output("y", conv_relu_pool(x, w, graph.input("b", {DType::kF32, {1}})));
    const std::vector<float> picture{INFINITY, 1, 1, 1}, ones(9, 1.0f), minus(9, -1.0f), zero{0};
    for (const auto* filter : {&ones, &minus}) {
      NamedTensors inputs;
      inputs["x"] = HostTensor({DType::kF32, {1, 2, 2, 1}}, std::span<const float>(picture));
      inputs["w"] = HostTensor({DType::kF32, {1, 3, 3, 1}}, std::span<const float>(*filter));
      inputs["b"] = HostTensor({DType::kF32, {1}}, std::span<const float>(zero));
      EXPECT_EQ(interpret(graph, inputs, {.kernels = kernels}).outputs.at("y")[0], filter == &ones ? INFINITY : 0);
    }
  }
}

TEST(ConvReluPool, TheFirstLayersInputGradientIsDeadCode) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {2, 4, 4, 1}}), w = graph.input("w", {DType::kF32, {3, 3, 3, 1}});
  const Tensor y = conv_relu_pool(x, w, graph.input("b", {DType::kF32, {3}}));
  const Tensor loss = sum_to(y, {});
  graph.output("dw", gradients(loss, std::array{w})[0]);
  const Graph optimized = optimize(graph.clone());
  for (const Node& node : optimized.nodes()) EXPECT_NE(node.op, &kConvReluPoolInputGrad);
}

// Of two layers the last one's gradient takes in the linear layer's; the first one's does not read a product.
TEST(ConvReluPool, ALinearLayersInputGradientIsComputedByTheReader) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {7, 8, 12, 1}}), w1 = graph.input("w1", {DType::kF32, {5, 3, 3, 1}}),
               b1 = graph.input("b1", {DType::kF32, {5}}), w2 = graph.input("w2", {DType::kF32, {6, 3, 3, 5}}),
               b2 = graph.input("b2", {DType::kF32, {6}}), head = graph.input("head", {DType::kF32, {10, 36}});
  const Tensor pooled = conv_relu_pool(conv_relu_pool(x, w1, b1), w2, b2);
  const Tensor single = matmul(
      reshape(conv_relu_pool(x, w1, b1), {7, 120}), graph.input("direct", {DType::kF32, {10, 120}}), false, true);
  const Tensor loss =
      sum_to(square(matmul(reshape(pooled, {7, 36}), head, false, true)), {}) + sum_to(square(single), {});
  const auto d = gradients(loss, std::array{w1, b1, w2, b2, head});
  for (size_t i = 0; i < d.size(); ++i) graph.output("d" + std::to_string(i), d[i]);
  const Graph fused = optimize(graph.clone()), plain = optimize(graph.clone(), {.off = {"fuse_pool_gradient"}});
  const auto with_factors = [](const Graph& g) {
    return std::ranges::count_if(
        g.nodes(), [](const Node& node) { return node.op == &kConvReluPoolWeightGrad && node.in.size() == 4; });
  };
  EXPECT_EQ(with_factors(fused), 1);  // the second layer's input gradient reads its dy as well
  EXPECT_EQ(with_factors(plain), 0);
  NamedTensors inputs;
  for (const GraphInput& input : fused.inputs()) {
    HostTensor tensor(fused.value(input.value).type);
    for (size_t i = 0; i < tensor.as<float>().size(); ++i)
      tensor.as<float>()[i] = std::sin(static_cast<float>(i) * 1.3f + static_cast<float>(input.value));
    inputs[input.name] = std::move(tensor);
  }
  for (const KernelSet kernels : {KernelSet::kFast, KernelSet::kReference}) {
    const auto got = interpret(fused, inputs, {.kernels = kernels}).outputs;
    for (const auto& [name, want] : interpret(plain, inputs, {.kernels = KernelSet::kReference}).outputs) {
      double size = 1;
      for (const double value : want.values()) size = std::max(size, std::abs(value));
      for (int64_t i = 0; i < want.type().shape.elements(); ++i)
        EXPECT_NEAR(got.at(name)[i], want[i], 1e-5 * size) << name << " " << i;
    }
  }
}

TEST(ConvReluPool, ShapesThatDoNotFitAreNamed) {
  Graph graph;
  const Tensor w = graph.input("w", {DType::kF32, {3, 3, 3, 1}}), b = graph.input("b", {DType::kF32, {3}});
  const auto message = [&](TensorType type) {
    return error_of([&] { conv_relu_pool(graph.input(type.text(), type), w, b); }, ErrorKind::kShape);
  };
  EXPECT_PRED2(has_text, message({DType::kF32, {1, 4, 4, 2}}), "channels 2 and 1 differ");
  EXPECT_PRED2(has_text, message({DType::kF32, {1, 1, 4, 1}}), "smaller than the 2x2 window");
  EXPECT_PRED2(has_text, message({DType::kU8, {1, 4, 4, 1}}), "u8 needs one");
}
}  // namespace
}  // namespace linnet
