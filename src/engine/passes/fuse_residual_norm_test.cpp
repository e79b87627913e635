#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include "engine/exec/interpreter.h"
#include "engine/ir/op.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/norm/norm.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {
struct Variant {
  bool norm_first;
  float dropout;
  bool training;
  bool rms = false;
};

// Three sub-layers with a residual connection each, and the gradients of all their parameters.
Graph layers(const Variant& v) {
  constexpr int64_t kWidth = 24;
  Graph graph;
  const Tensor random = graph.input("random", {DType::kI32, {4}});
  Tensor x = graph.input("x", {DType::kF32, {2, 5, kWidth}});
  std::vector<Tensor> parameters{x};
  const auto parameter = [&](const std::string& name, Shape shape) {
    return parameters.emplace_back(graph.input(name, {DType::kF32, shape}));
  };
  const auto norm = [&](Tensor in, Tensor scale, Tensor shift) {
    return v.rms ? rms_norm(in, scale) + shift : layer_norm(in, scale, shift);
  };
  for (int layer = 0; layer < 3; ++layer) {
    const std::string name = std::to_string(layer);
    const Tensor w = parameter("w" + name, {kWidth, kWidth}), b = parameter("b" + name, {kWidth});
    const Tensor scale = parameter("s" + name, {kWidth}), shift = parameter("t" + name, {kWidth});
    const auto branch = [&](Tensor in) {
      return dropout(exp(matmul(in, w, false, true) * 0.1) + b, random, v.dropout, 11 + static_cast<uint64_t>(layer));
    };
    x = v.norm_first ? x + branch(norm(x, scale, shift)) : norm(x + branch(x), scale, shift);
  }
  x = norm(x, parameter("scale", {kWidth}), parameter("shift", {kWidth}));
  const Tensor loss = sum_to(x * x * x, {});
  graph.output("loss", loss);
  if (!v.training) return graph;
  const std::vector<Tensor> d = gradients(loss, parameters);
  for (size_t i = 0; i < d.size(); ++i) graph.output("d" + std::to_string(i), d[i]);
  return graph;
}

int count(const Graph& graph, const OpDef& op) {
  return static_cast<int>(
      std::count_if(graph.nodes().begin(), graph.nodes().end(), [&](const Node& node) { return is(node, op); }));
}

NamedTensors inputs_of(const Graph& graph) {
  std::mt19937 random(7);
  NamedTensors inputs;
  for (const GraphInput& input : graph.inputs()) {
    HostTensor tensor(graph.value(input.value).type);
    if (tensor.type().dtype == DType::kI32)
      for (int32_t& v : tensor.as<int32_t>()) v = static_cast<int32_t>(random() % 1000);
    else
      for (float& v : tensor.as<float>()) v = std::uniform_real_distribution<float>(-1, 1)(random);
    inputs[input.name] = std::move(tensor);
  }
  return inputs;
}

TEST(FuseResidualNorm, EverySubLayersEndIsOneNodeAndTheResultsKeepTheirBits) {
  for (const bool norm_first : {false, true})
    for (const float dropout : {0.0f, 0.25f})
      for (const auto& [training, rms] : {std::pair{false, false}, {true, false}, {true, true}}) {
        SCOPED_TRACE(std::string(norm_first ? "pre" : "post") + (dropout > 0 ? " dropout" : "") +
                     (training ? " training" : "") + (rms ? " rms" : ""));
        const Graph graph = layers({norm_first, dropout, training, rms});
        const Graph fused = fuse_residual_norm(graph);
        EXPECT_EQ(count(fused, kResidualNorm), 3);
        EXPECT_EQ(count(fused, kLayerNorm), 1);  // pre-LN: the first; post-LN: the last, of a norm
        EXPECT_EQ(count(fused, kDropout), 0);
        // Without dropout only pre-LN has something to join: the sum with the residual stream's gradient.
        const int backward = dropout > 0 ? (norm_first ? 4 : 3) : (norm_first ? 3 : 0);
        EXPECT_EQ(count(fused, kResidualNormGrad), training ? backward : 0);
        const NamedTensors inputs = inputs_of(graph);
        const auto want = interpret(graph, inputs, {.kernels = KernelSet::kFast}).outputs,
                   got = interpret(fused, inputs, {.kernels = KernelSet::kFast}).outputs;
        for (const auto& [name, tensor] : want)
          EXPECT_EQ(std::memcmp(got.at(name).data(), tensor.data(), tensor.type().bytes()), 0) << name;
      }
}

TEST(FuseResidualNorm, ASumThatIsReadBeforeItsNormStaysApart) {
  Graph graph;
  const auto input = [&](const char* name, Shape shape) { return graph.input(name, {DType::kF32, shape}); };
  const Tensor sum = input("x", {3, 8}) + input("f", {3, 8});
  const Tensor weight = exp(sum);
  graph.output("early", weight);
  graph.output("y", layer_norm(sum, input("w", {8}), input("b", {8})));
  EXPECT_EQ(count(fuse_residual_norm(graph), kResidualNorm), 0);
}

// A backend that can add up the sums of several norms: the CPU's reference kernels.
const Backend& with_norm_sums() {
  static const Backend backend{&cpu_device(), cpu_backend().ops};
  return backend;
}

void expect_close(const Graph& one, const Graph& other) {
  const NamedTensors in = inputs_of(one), want = interpret(one, in).outputs, got = interpret(other, in).outputs;
  for (const auto& [name, tensor] : want)
    for (int64_t i = 0; i < tensor.type().shape.elements(); ++i)
      ASSERT_NEAR(got.at(name)[i], tensor[i], 1e-4 * (1 + std::abs(tensor[i]))) << name << " " << i;
}

TEST(JoinNormSums, OneNodeAddsUpTheSumsOfAllNorms) {
  for (const bool norm_first : {false, true})
    for (const bool rms : {false, true}) {
      const Graph graph = fuse_residual_norm(layers({norm_first, 0.25f, true, rms}));
      const Graph joined = join_norm_sums(graph, with_norm_sums());
      verify(joined);
      EXPECT_EQ(count(joined, kNormSums), 1);
      for (const Node& node : joined.nodes())
        if (is(node, kNormSums)) EXPECT_EQ(node.in.size(), 4u);
      expect_close(graph, joined);
      EXPECT_EQ(count(join_norm_sums(graph, cpu_backend()), kNormSums), 0);
    }
}

// Such as by ranks that exchange gradients while the backward pass goes on.
TEST(JoinNormSums, ANormWhoseGradientIsReadBeforeTheLastNormStaysApart) {
  Graph graph;
  const auto input = [&](const std::string& name, Shape shape) { return graph.input(name, {DType::kF32, shape}); };
  std::vector<Tensor> weights;
  Tensor x = input("x", {9, 8});
  for (const char* name : {"0", "1", "2"})
    x = tanh(rms_norm(x, weights.emplace_back(input(std::string("w") + name, {8}))));
  const std::vector<Tensor> d = gradients(sum_to(x * x, {}), weights);
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    rewriter.copy(node);
    if (!d[2].defined() || node.out.size() < 2 || node.out[1] != d[2].id) continue;
    rewriter.graph().output("early", exp(rewriter[d[2].id]));
  }
  for (size_t i = 0; i < 2; ++i) rewriter.graph().output("d" + std::to_string(i), rewriter[d[i].id]);
  const Graph early = rewriter.finish(), joined = join_norm_sums(early, with_norm_sums());
  verify(joined);
  for (const Node& node : joined.nodes())
    if (is(node, kNormSums)) EXPECT_EQ(node.in.size(), 2u);
  EXPECT_EQ(count(joined, kNormSums), 1);
  expect_close(early, joined);
}
}  // namespace
}  // namespace linnet
