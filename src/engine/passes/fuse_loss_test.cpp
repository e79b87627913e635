#include <gtest/gtest.h>
#include <random>
#include "engine/exec/interpreter.h"
#include "engine/ir/op.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {
constexpr int64_t kRows = 12, kWidth = 8, kClasses = 30, kSize = kClasses * kWidth;

// Tokens through a table, tied to the head or not, and the gradients of all parameters in one tensor, added to the
// state `start` where gradients are accumulated.
Graph training_graph(bool tied, bool accumulate, double loss_scale = 1) {
  Graph graph;
  const Tensor ids = graph.input("ids", {DType::kI32, {kRows}}),
               targets = graph.input("targets", {DType::kI32, {kRows}});
  const Tensor flat = graph.input("parameters", {DType::kF32, {2 * kSize + kClasses}});
  std::vector<Tensor> parameters = split(flat, 0, {kSize, kSize, kClasses});
  const Tensor table = reshape(parameters[0], {kClasses, kWidth});
  const Tensor head = tied ? table : reshape(parameters[1], {kClasses, kWidth});
  const Tensor loss = linear_cross_entropy_sum(exp(embedding(table, ids) * 1.5), head, parameters[2], targets, 0.1);
  parameters = tied ? std::vector{table, parameters[2]} : std::vector{table, head, parameters[2]};
  std::vector<Tensor> parts = gradients(loss_scale == 1 ? loss : loss * loss_scale, parameters);
  int64_t size = 0;
  for (Tensor& part : parts) size += part.shape().elements();
  const Tensor start = graph.input("gradient", {DType::kF32, {size}});
  const std::vector<Tensor> before =
      tied ? split(start, 0, {kSize, kClasses}) : split(start, 0, {kSize, kSize, kClasses});
  for (size_t i = 0; i < parts.size(); ++i) {
    if (accumulate) parts[i] = reshape(before[i], parts[i].shape()) + parts[i];
    parts[i] = reshape(parts[i], {parts[i].shape().elements()});
  }
  const Tensor whole = concat(parts[0], std::span(parts).subspan(1), 0);
  if (accumulate) graph.update(start, whole);
  graph.output("gradient", accumulate ? whole * 1.0 : whole);
  graph.output("loss", loss);
  return graph;
}

int count(const Graph& graph, const OpDef& op) {
  return static_cast<int>(
      std::count_if(graph.nodes().begin(), graph.nodes().end(), [&](const Node& node) { return is(node, op); }));
}

const Node& find(const Graph& graph, const OpDef& op) {
  return *std::find_if(graph.nodes().begin(), graph.nodes().end(), [&](const Node& node) { return is(node, op); });
}

NamedTensors inputs_of(const Graph& graph) {
  std::mt19937 random(7);
  NamedTensors inputs;
  for (const GraphInput& input : graph.inputs()) {
    HostTensor tensor(graph.value(input.value).type);
    if (tensor.type().dtype == DType::kI32)
      for (int32_t& v : tensor.as<int32_t>()) v = static_cast<int32_t>(random() % kClasses);
    else
      for (float& v : tensor.as<float>()) v = std::uniform_real_distribution<float>(-1, 1)(random);
    inputs[input.name] = std::move(tensor);
  }
  inputs.at("targets").as<int32_t>()[3] = -1;
  return inputs;
}

void expect_equal_results(const Graph& a, const Graph& b) {
  const NamedTensors inputs = inputs_of(a);
  const auto want = interpret(a, inputs, {.kernels = KernelSet::kFast}).outputs,
             got = interpret(b, inputs, {.kernels = KernelSet::kFast}).outputs;
  for (const auto& [name, tensor] : want)
    for (int64_t i = 0; i < tensor.type().shape.elements(); ++i)
      ASSERT_NEAR(got.at(name)[i], tensor[i], 1e-5 * (1 + std::abs(tensor[i]))) << name << " " << i;
}

TEST(FuseLoss, TheGradientGivesTheLossToo) {
  for (bool tied : {false, true})
    for (bool accumulate : {false, true}) {
      const Graph graph = training_graph(tied, accumulate, 0.25);
      const Graph fused = optimize(graph.clone()), plain = optimize(graph.clone(), {.off = {"fuse_loss"}});
      EXPECT_EQ(count(fused, kLinearCrossEntropy), 0);
      EXPECT_EQ(count(plain, kLinearCrossEntropy), 1);
      expect_equal_results(plain, fused);
    }
}

// No [V, D] beside the flat gradient: the table's gradients are added up there.
TEST(FuseLoss, ATiedTablesGradientIsAddedUpInPlace) {
  for (bool accumulate : {false, true}) {
    const Graph fused = optimize(training_graph(true, accumulate));
    EXPECT_EQ(find(fused, kLinearCrossEntropyGrad).attrs.as<LinearCrossEntropyAttrs>().accumulate, accumulate);
    EXPECT_TRUE(find(fused, kEmbeddingGrad).attrs.as<EmbeddingGradAttrs>().accumulate);
    const Shape table{kClasses, kWidth};
    for (const Node& node : fused.nodes())
      for (const ValueId out : node.out)
        EXPECT_TRUE(fused.value(out).type.shape != Shape({kClasses, kWidth}) || fused.value(out).view) << node.op->name;
  }
}

// A frozen table: nobody asks for its gradient, so none is computed.
TEST(FuseLoss, AFrozenWeightHasNoGradient) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {3, kWidth}}),
               w = graph.input("w", {DType::kF32, {kClasses, kWidth}});
  const Tensor loss = linear_cross_entropy_sum(x, w, std::nullopt, graph.input("targets", {DType::kI32, {3}}));
  graph.output("dx", gradients(loss, std::array{x})[0]);
  graph.output("loss", loss);
  const Graph fused = optimize(graph.clone()), plain = optimize(graph.clone(), {.off = {"fuse_loss"}});
  EXPECT_EQ(fused.node_count(), 2) << "the loss with its gradient, and the gradient of the loss";
  for (const Node& node : fused.nodes())
    for (const ValueId out : node.out) EXPECT_TRUE(fused.value(out).type.shape != Shape({kClasses, kWidth}));
  expect_equal_results(plain, fused);
}

TEST(FuseLoss, ALossWhoseGradientNeedsItsValueStaysApart) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {3, 4}}), w = graph.input("w", {DType::kF32, {5, 4}});
  const Tensor loss = linear_cross_entropy_sum(x, w, std::nullopt, graph.input("targets", {DType::kI32, {3}}));
  const std::vector<Tensor> d = gradients(square(loss), std::array{x, w});
  graph.output("dx", d[0]);
  graph.output("dw", d[1]);
  const Graph fused = fuse_loss(graph);
  EXPECT_EQ(count(fused, kLinearCrossEntropy), 1);
  EXPECT_EQ(count(fused, kLinearCrossEntropyGrad), 1);
}

TEST(FuseLoss, AnEvaluationKeepsTheForwardNode) {
  Graph graph;
  graph.output(
      "loss", linear_cross_entropy_sum(graph.input("x", {DType::kF32, {3, 4}}), graph.input("w", {DType::kF32, {5, 4}}),
                  std::nullopt, graph.input("targets", {DType::kI32, {3}})));
  EXPECT_EQ(count(optimize(std::move(graph)), kLinearCrossEntropy), 1);
}
}  // namespace
}  // namespace linnet
