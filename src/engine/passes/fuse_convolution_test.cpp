#include <gtest/gtest.h>
#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <utility>
#include "engine/exec/interpreter.h"
#include "engine/ops/conv2d/conv2d.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/passes/passes.h"
#include "models/nn/layers.h"
#include "models/nn/parameter_layout.h"
#include "models/nn/trace.h"

namespace linnet {
namespace {
const TensorType kImages{DType::kF32, {2, 6, 5, 3}}, kFilters{DType::kF32, {4, 3, 3, 3}}, kRow{DType::kF32, {4}},
    kResult{DType::kF32, {2, 6, 5, 4}};

struct Inputs {
  explicit Inputs(Graph& graph)
      : x(graph.input("x", kImages)), weight(graph.input("weight", kFilters)), scale(graph.input("scale", kRow)),
        bias(graph.input("bias", kRow)), residual(graph.input("residual", kResult)) {}
  Tensor x, weight, scale, bias, residual;
  Tensor product() const { return conv2d(x, weight, 1, 1); }
};

// What the optimized graph computes, by its labels in order.
std::string fused(const std::function<void(Graph&, const Inputs&)>& build) {
  Graph graph;
  build(graph, Inputs(graph));
  std::string text;
  const Graph optimized = optimize(std::move(graph));
  for (const Node& node : optimized.nodes()) text += (text.empty() ? "" : ", ") + label_of(node);
  return text;
}

TEST(FuseConvolution, TakesInWhatFollows) {
  EXPECT_EQ(fused([](Graph& graph, const Inputs& in) {
    graph.output("y", relu(in.product() * in.scale + in.bias + in.residual));
  }),
      "conv2d+scale+bias+residual+relu");
  EXPECT_EQ(fused([](Graph& graph, const Inputs& in) { graph.output("y", in.residual + (in.product() + in.bias)); }),
      "conv2d+bias+residual");
  // The shortcut's convolution is computed before the one that takes it in.
  EXPECT_EQ(fused([](Graph& graph, const Inputs& in) {
    const Tensor shortcut = in.product() * in.scale;
    graph.output("y", relu(in.product() + in.bias + shortcut));
  }),
      "conv2d+scale, conv2d+bias+residual+relu");
}

TEST(FuseConvolution, LeavesWhatItsOrderDoesNotAllow) {
  const auto convolution = [](const std::string& text) { return text.substr(0, text.find(',')); };
  // A bias after the residual, a factor after the bias, a sum after the ReLU.
  EXPECT_EQ(convolution(
                fused([](Graph& graph, const Inputs& in) { graph.output("y", in.product() + in.residual + in.bias); })),
      "conv2d+residual");
  EXPECT_EQ(convolution(
                fused([](Graph& graph, const Inputs& in) { graph.output("y", (in.product() + in.bias) * in.scale); })),
      "conv2d+bias");
  EXPECT_EQ(
      convolution(fused([](Graph& graph, const Inputs& in) { graph.output("y", relu(in.product()) + in.residual); })),
      "conv2d+relu");
  // What others read too.
  EXPECT_EQ(convolution(fused([](Graph& graph, const Inputs& in) {
    const Tensor y = in.product();
    graph.output("y", y), graph.output("z", relu(y));
  })),
      "conv2d");
}

// As imports of ONNX have them: one node, with instructions in another order than the pass has.
Tensor hard_swish(const Tensor& x) {
  ExpressionBuilder b;
  const auto half = b.constant(0.5), in = b.input(0);
  const auto line = b.apply(Scalar::kAdd, b.apply(Scalar::kMul, in, b.constant(1.0F / 6)), half);
  const auto ramp = b.apply(Scalar::kMax, b.constant(0), b.apply(Scalar::kMin, b.constant(1), line));
  return pointwise(b.finish(b.apply(Scalar::kMul, ramp, in)), std::array{x}, {});
}
Tensor relu6(const Tensor& x) {
  ExpressionBuilder b;
  const auto above = b.apply(Scalar::kMax, b.input(0), b.constant(0));
  return pointwise(b.finish(b.apply(Scalar::kMin, above, b.constant(6))), std::array{x}, {});
}
Tensor silu_of_two_nodes(const Tensor& x) { return apply_scalar(Scalar::kSigmoid, At(x)) * x; }

// Activation functions, in convolutions of every method: the bits are those of the functions apart.
TEST(FuseConvolution, TakesInActivationsWithoutChangingABit) {
  struct Case {
    const char* name;
    Shape filters;
    int64_t stride, groups, size = 12;  // of the images
  };
  const Case cases[] = {{"product", {32, 1, 1, 16}, 1, 1}, {"product of one pixel", {33, 1, 1, 16}, 1, 1, 1},
      {"depthwise", {16, 3, 3, 1}, 1, 16}, {"implicit", {32, 3, 3, 16}, 2, 1}, {"winograd", {32, 3, 3, 16}, 1, 1}};
  const std::pair<const char*, std::function<Tensor(Tensor)>> functions[] = {
      {"relu", [](const Tensor& x) { return relu(x); }}, {"silu", [](const Tensor& x) { return silu(x); }},
      {"silu", silu_of_two_nodes}, {"hard_swish", hard_swish}, {"relu6", relu6}};
  for (const Case& test : cases)
    for (const auto& [name, function] : functions) {
      Graph graph;
      const Tensor x = graph.input("x", {DType::kF32, {1, test.size, test.size, 16}});
      const Tensor weight = graph.input("weight", {DType::kF32, test.filters});
      const Tensor bias = graph.input("bias", {DType::kF32, {test.filters[0]}});
      const int64_t padding = test.filters[1] / 2;
      graph.output("y", function(conv2d(x, weight, test.stride, padding, 1, test.groups) + bias));
      NamedTensors values;
      uint64_t state = 7;
      for (const GraphInput& input : graph.inputs()) {
        HostTensor tensor(graph.value(input.value).type);
        for (float& value : tensor.as<float>()) {
          state = state * 6364136223846793005u + 1442695040888963407u;
          value = static_cast<float>(static_cast<double>(state >> 40) / (1 << 23) - 1);
        }
        values[input.name] = std::move(tensor);
      }
      const Graph fused = optimize(graph.clone());
      ASSERT_EQ(fused.node_count(), 1) << test.name << " " << name;
      EXPECT_EQ(label_of(fused.node(0)), std::string("conv2d+bias+") + name);
      const InterpreterOptions fast{.kernels = KernelSet::kFast};
      EXPECT_EQ(interpret(fused, values, fast).outputs.at("y").values(),
          interpret(graph, values, fast).outputs.at("y").values())
          << test.name << " " << name;
    }
}

// Batch normalization as it evaluates: against (x - mean) / sqrt(variance + epsilon) * weight + bias in float64.
TEST(FuseConvolution, FoldsBatchNormalization) {
  struct Net : Module {
    Net() : norm{this, "norm", 4}, filters{this, "filters", kFilters.shape, normal_init(1)} {}
    BatchNorm norm;
    Parameter filters;
  } net;
  const ParameterLayout layout(net);
  const auto traced = [&](DType dtype, bool by_hand) {
    Trace trace({.dtype = dtype, .layout = &layout});
    const Tensor x = trace.input("x", {dtype, kImages.shape});
    const Tensor product = conv2d(x, net.filters, 1, 1);
    const BatchNorm& n = net.norm;
    const Tensor y =
        by_hand ? (product - n.running_mean.tensor()) * rsqrt(n.running_var.tensor() + n.epsilon) * n.weight.tensor() +
                      n.bias.tensor()
                : net.norm(product);
    trace.graph().output("y", relu(y));
    return trace.finish();
  };
  const Graph folded = optimize(traced(DType::kF32, false)), exact = traced(DType::kF64, true);
  EXPECT_EQ(std::ranges::count_if(
                folded.nodes(), [](const Node& node) { return label_of(node) == "conv2d+scale+bias+relu"; }),
      1);
  NamedTensors floats, doubles;
  uint64_t state = 7;
  for (const GraphInput& input : exact.inputs()) {
    HostTensor values(exact.value(input.value).type), short_values({DType::kF32, values.type().shape});
    for (size_t i = 0; i < values.as<double>().size(); ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const auto value = static_cast<float>(0.5 + static_cast<double>(state >> 40) / (1 << 24));  // variances too
      values.as<double>()[i] = short_values.as<float>()[i] = value;
    }
    doubles[input.name] = std::move(values), floats[input.name] = std::move(short_values);
  }
  const std::vector<double> found = interpret(folded, floats, {.kernels = KernelSet::kFast}).outputs.at("y").values();
  const std::vector<double> expected = interpret(exact, doubles).outputs.at("y").values();
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5 * (1 + std::abs(expected[i])));
}
}  // namespace
}  // namespace linnet
