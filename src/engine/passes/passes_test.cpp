#include "engine/passes/passes.h"
#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <map>
#include "base/error.h"
#include "engine/exec/interpreter.h"
#include "engine/ir/op.h"
#include "engine/kernels/gemm/gemm.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/quantized/quantized.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
namespace {
Graph linear_relu() {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {4, 8}}), w = graph.input("w", {DType::kF32, {6, 8}}),
               b = graph.input("b", {DType::kF32, {6}});
  graph.output("y", relu(matmul(x, w, false, true) + b));
  return graph;
}

int count(const Graph& graph, const char* op) {
  int n = 0;
  for (const Node& node : graph.nodes()) n += std::string(node.op->name) == op;
  return n;
}

TEST(Passes, APassIsSwitchedOffByItsName) {
  EXPECT_EQ(count(optimize(linear_relu()), "pointwise"), 0);
  EXPECT_EQ(count(optimize(linear_relu(), {.off = {"fuse_epilogue"}}), "pointwise"), 1);  // add and relu, one chain
  EXPECT_EQ(count(optimize(linear_relu(), {.off = {"fuse_epilogue", "fuse_pointwise"}}), "pointwise"), 2);
  EXPECT_THROW(optimize(linear_relu(), {.off = {"fuse_everything"}}), Error);
}

// A factor for each image and channel, as networks weigh their channels.
TEST(Passes, RowsThatAreRepeatedInTheMiddleAreNotStored) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {3, 4, 5, 7}}),
               gate = graph.input("gate", {DType::kF32, {3, 1, 1, 7}});
  graph.output("y", relu(x * gate));
  const Graph fused = optimize(graph.clone());
  EXPECT_EQ(count(fused, "broadcast") + count(fused, "permute"), 0) << dump(fused);
  EXPECT_EQ(count(optimize(graph.clone(), {.off = {"fuse_pointwise"}}), "broadcast"), 1);
  std::map<std::string, HostTensor> inputs{
      {"x", HostTensor({DType::kF32, {3, 4, 5, 7}})}, {"gate", HostTensor({DType::kF32, {3, 1, 1, 7}})}};
  float next = 0;
  for (auto& [name, tensor] : inputs)
    for (float& value : tensor.as<float>()) value = std::sin(++next);
  const HostTensor before = interpret(graph, inputs).outputs.at("y"), after = interpret(fused, inputs).outputs.at("y");
  for (int i = 0; i < 3 * 4 * 5 * 7; ++i) EXPECT_EQ(before[i], after[i]) << i;
}

TEST(Passes, TheReportNamesEveryPassThatRanAndItsEffect) {
  std::vector<PassReport> report;
  const Graph fused = optimize(linear_relu(), {.off = {"make_views"}}, &report);
  EXPECT_EQ(linear_relu().node_count(), 3);
  EXPECT_EQ(fused.node_count(), 1);
  const auto find = [&](const char* name) { return std::ranges::find(report, name, &PassReport::name); };
  EXPECT_EQ(find("round_shared"), report.end());  // unless asked for
  EXPECT_EQ(find("make_views"), report.end());
  ASSERT_NE(find("fuse_epilogue"), report.end());
  EXPECT_EQ(find("fuse_epilogue")->fused, std::vector<std::string>{"matmul+bias+relu x 1"});
}

TEST(Passes, PrecisionIsLoweredInEveryProductAndOnlyWhenAsked) {
  EXPECT_EQ(optimize(linear_relu(), {.precision = Precision::kBf16}).node(0).attrs.text(),
      "trans_b bias activation=relu precision=bf16");
  EXPECT_EQ(optimize(linear_relu()).node(0).attrs.text(), "trans_b bias activation=relu");
  EXPECT_EQ(optimize(linear_relu(), {.off = {"lower_precision"}, .precision = Precision::kBf16}).node(0).attrs.text(),
      "trans_b bias activation=relu");
}

HostTensor waves(TensorType type, float size) {
  HostTensor tensor(type);
  for (size_t i = 0; i < tensor.as<float>().size(); ++i)
    tensor.as<float>()[i] = size * (std::sin(static_cast<float>(i) * 1.7f) + 0.01f);
  return tensor;
}

double size_of(const HostTensor& a) {
  double largest = 1;
  for (int64_t i = 0; i < a.type().shape.elements(); ++i) largest = std::max(largest, std::abs(a[i]));
  return largest;
}

double largest_difference(const HostTensor& a, const HostTensor& b) {
  double largest = 0;
  for (int64_t i = 0; i < a.type().shape.elements(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

// The fast kernel against the reference, which rounds as it does.
TEST(Passes, ProductsInBf16AreWithinRoundingOfFp32) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {40, 65}}), w = graph.input("w", {DType::kF32, {48, 65}});
  graph.output("y", matmul(x, w, false, true));
  const Graph lowered = optimize(graph.clone(), {.precision = Precision::kBf16});
  NamedTensors inputs;
  for (const GraphInput& input : graph.inputs()) inputs[input.name] = waves(graph.value(input.value).type, 1);
  const HostTensor exact = interpret(graph, inputs).outputs.at("y");
  const HostTensor reference = interpret(lowered, inputs).outputs.at("y");
  const HostTensor fast = interpret(lowered, inputs, {.kernels = KernelSet::kFast}).outputs.at("y");
  EXPECT_LE(largest_difference(reference, exact), 0.2);
  EXPECT_GE(largest_difference(reference, exact), 1e-3);  // it did round
  EXPECT_LE(largest_difference(fast, gemm_has_bf16() ? reference : exact), 1e-5);
}

TEST(Passes, AttentionAloneMayMultiplyInBf16) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {1, 6, 16}});
  graph.output("y", matmul(attention(x, x, x, {.heads = 2}), graph.input("w", {DType::kF32, {16, 16}})));
  const Graph lowered = optimize(graph.clone(), {.attention_precision = Precision::kBf16});
  ASSERT_EQ(lowered.node_count(), 2);
  EXPECT_EQ(lowered.node(0).attrs.as<AttentionAttrs>().precision, Precision::kBf16);
  EXPECT_EQ(lowered.node(1).attrs.as<MatmulAttrs>().precision, Precision::kF32);
}

TEST(Passes, ProductsByWeightsInBf16MayMultiplyAsStored) {
  Graph graph;
  const PackedShape shape{WeightFormat::kBf16, 16, 16};
  const Tensor packed = graph.input("packed", {DType::kU8, {static_cast<int64_t>(shape.bytes())}});
  const Tensor x = graph.input("x", {DType::kF32, {1, 6, 16}});
  const Tensor y = matmul(attention(x, x, x, {.heads = 2}), dequantize(packed, shape), false, true);
  graph.output("y", matmul(y, graph.input("kept", {DType::kF32, {16, 16}})));
  const Graph lowered = optimize(graph.clone(), {.as_stored = true});
  ASSERT_EQ(lowered.node_count(), 3);
  EXPECT_EQ(lowered.node(0).attrs.as<AttentionAttrs>().precision, Precision::kF32);
  EXPECT_EQ(lowered.node(1).attrs.as<QuantizedMatmulAttrs>().product.precision, Precision::kBf16);
  EXPECT_EQ(lowered.node(2).attrs.as<MatmulAttrs>().precision, Precision::kF32);
}

// A feed-forward layer with its gradients.
Graph feed_forward(Tensor (*function)(At)) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {3, 7, 40}}), w1 = graph.input("w1", {DType::kF32, {70, 40}}),
               b1 = graph.input("b1", {DType::kF32, {70}}), w2 = graph.input("w2", {DType::kF32, {40, 70}}),
               b2 = graph.input("b2", {DType::kF32, {40}});
  const Tensor y = x + (matmul(function(matmul(x, w1, false, true) + b1), w2, false, true) + b2);
  const Tensor loss = sum_to(square(y), {});
  graph.output("loss", loss);
  const auto d = gradients(loss, std::array{x, w1, b1, w2, b2});
  for (size_t i = 0; i < d.size(); ++i) graph.output("d" + std::to_string(i), d[i]);
  return graph;
}

TEST(Passes, AFeedForwardLayerLosesItsActivationsAndKeepsItsValues) {
  const std::pair<Tensor (*)(At), std::string> functions[] = {
      {relu, "relu"}, {gelu, "gelu pre_activation"}, {gelu_tanh, "gelu_tanh pre_activation"}};
  for (const auto& [function, text] : functions) {
    const Graph fused = optimize(feed_forward(function)),
                apart = optimize(feed_forward(function), {.off = {"fuse_epilogue"}});
    const std::string name = text.substr(0, text.find(' '));
    int forward = 0, backward = 0;
    for (const Node& node : fused.nodes()) {
      forward += node.attrs.text() == "trans_b bias activation=" + text;
      backward += node.attrs.text() == "derivative=" + name;
    }
    EXPECT_EQ(forward, 1) << dump(fused);
    EXPECT_EQ(backward, 1) << dump(fused);
    NamedTensors inputs;
    for (const GraphInput& input : fused.inputs()) inputs[input.name] = waves(fused.value(input.value).type, 0.3f);
    const auto one = interpret(fused, inputs, {.kernels = KernelSet::kFast}).outputs;
    const auto other = interpret(apart, inputs, {.kernels = KernelSet::kFast}).outputs;
    for (const auto& [output, tensor] : other)
      EXPECT_LE(largest_difference(one.at(output), tensor), 1e-5 * size_of(tensor)) << text << " " << output;
  }
}

TEST(Passes, WhatFlowsBackThroughDropoutAndReluIsOneProduct) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {3, 7, 40}}), w1 = graph.input("w1", {DType::kF32, {70, 40}}),
               w2 = graph.input("w2", {DType::kF32, {40, 70}}), random = graph.input("random", {DType::kI32, {4}});
  const Tensor y = matmul(dropout(relu(matmul(x, w1, false, true)), random, 0.25f, 7), w2, false, true);
  const Tensor loss = sum_to(square(y), {});
  const auto d = gradients(loss, std::array{x, w1, w2});
  for (size_t i = 0; i < d.size(); ++i) graph.output("d" + std::to_string(i), d[i]);
  const Graph fused = optimize(graph.clone()), apart = optimize(graph.clone(), {.off = {"fuse_epilogue"}});
  EXPECT_EQ(count(apart, "dropout"), 2);
  EXPECT_EQ(count(fused, "dropout"), 1) << dump(fused);
  NamedTensors inputs;
  for (const GraphInput& input : fused.inputs())
    inputs[input.name] = waves({DType::kF32, fused.value(input.value).type.shape}, 0.3f);
  inputs["random"] = HostTensor({DType::kI32, {4}}, std::span<const int32_t>(std::array{3, 4, 5, 6}));
  const auto one = interpret(fused, inputs, {.kernels = KernelSet::kFast}).outputs;
  const auto other = interpret(apart, inputs, {.kernels = KernelSet::kFast}).outputs;
  for (const auto& [output, tensor] : other)
    EXPECT_LE(largest_difference(one.at(output), tensor), 1e-5 * size_of(tensor)) << output;
}

TEST(Passes, WhatIsReadBeforeItsActivationStaysApart) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {4, 8}}), w = graph.input("w", {DType::kF32, {8, 6}});
  const Tensor product = matmul(x, w);
  const Tensor first = exp(product), second = gelu(product);
  graph.output("y", first * second);
  const Graph last = optimize(graph.clone());
  EXPECT_EQ(count(last, "matmul"), 1);
  EXPECT_EQ(last.node(0).attrs.text(), "");
}

// exp(x) is what two nodes read. Where they are fused with a computation of it each, as where it is computed again,
// they read what storing it would have made of it.
TEST(Passes, AFusedResultIsRoundedAsAStoredOneIs) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {64}}), y = graph.input("y", {DType::kF32, {64}});
  const Tensor shared = exp(x);
  graph.output("sum", shared + y);
  graph.output("loss_sum", shared * y);
  const Graph rounded = round_shared(graph);
  ASSERT_TRUE(is_rounded_to_bf16(rounded.node(0).attrs.as<PointwiseAttrs>().expression)) << dump(rounded);

  Graph alone;
  const Tensor again = alone.add_one(
      kPointwise, std::array{alone.input("x", {DType::kF32, {64}})}, rounded.node(0).attrs, SourceLine::current());
  alone.output("sum", again + alone.input("y", {DType::kF32, {64}}));
  const Graph fused = fuse_pointwise(alone, cpu_backend());
  EXPECT_EQ(fused.node_count(), 1) << dump(fused);
  const Graph stored = optimize(graph.clone(), {.storage_type = DType::kBF16});
  EXPECT_EQ(dump(stored).find("to_bf16"), std::string::npos) << dump(stored);  // storing it does that
  const NamedTensors inputs{{"x", waves({DType::kF32, {64}}, 1)}, {"y", waves({DType::kF32, {64}}, 0.3f)}};
  const InterpreterOptions fast{.kernels = KernelSet::kFast};
  const HostTensor from_stored = interpret(stored, inputs, fast).outputs.at("sum");
  EXPECT_EQ(interpret(fused, inputs, fast).outputs.at("sum").values(), from_stored.values());
  EXPECT_GE(largest_difference(interpret(graph, inputs, fast).outputs.at("sum"), from_stored), 1e-3);
}

// Squared distances of all pairs and their gradients: no value of [B, T, T, D] is stored.
TEST(Passes, SumsComputeTheValuesThatNothingElseReads) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {3, 20, 20}}), w = graph.input("w", {DType::kF32, {3, 20, 20, 1}});
  const Tensor apart = reshape(x, {3, 20, 1, 20}) - reshape(x, {3, 1, 20, 20});
  const Tensor distances = sum_to(square(apart), {3, 20, 20, 1});
  graph.output("distances", distances);
  graph.output("dx", gradients(sum_to(distances * w, {}), std::array{x})[0]);
  const Graph fused = optimize(graph.clone());
  for (ValueId id = 0; id < fused.value_count(); ++id)
    EXPECT_LT(fused.value(id).type.shape.elements(), 3 * 20 * 20 * 20) << dump(fused);
  EXPECT_EQ(count(fused, "pointwise_sum"), 3) << dump(fused);
  // A bias's gradient is a sum of floats, also where its values are computed again (--memory).
  Graph bias;
  bias.output("y", sum_to(exp(bias.input("x", {DType::kF32, {30, 40}})), {40}));
  EXPECT_EQ(count(optimize(std::move(bias)), "pointwise_sum"), 0);
  NamedTensors inputs{{"x", waves({DType::kF32, {3, 20, 20}}, 1)}, {"w", waves({DType::kF32, {3, 20, 20, 1}}, 0.3f)}};
  const NamedTensors before = interpret(graph, inputs).outputs;
  for (const KernelSet kernels : {KernelSet::kReference, KernelSet::kFast}) {
    const NamedTensors after = interpret(fused, inputs, {.kernels = kernels}).outputs;
    for (const auto& [name, tensor] : before) EXPECT_LE(largest_difference(tensor, after.at(name)), 1e-4) << name;
  }
}

TEST(Passes, WhatNobodyReadsIsRemoved) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {4}});
  exp(exp(x));
  graph.output("y", x * 2.0);
  EXPECT_EQ(remove_dead_code(graph).node_count(), 1);
}

TEST(Passes, AProductReadTwiceKeepsItsOwnResult) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {4, 8}}), w = graph.input("w", {DType::kF32, {8, 6}}),
               b = graph.input("b", {DType::kF32, {6}});
  const Tensor product = matmul(x, w);
  graph.output("y", product + b);
  graph.output("z", product);
  EXPECT_EQ(count(optimize(std::move(graph)), "pointwise"), 1);
}

TEST(Passes, PartsOfAProjectionAreViewsOnlyWhereReadersTakeStrides) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {2, 3, 8}});
  const auto parts = split_evenly(x * 2.0, -1, 2);
  graph.output("y", parts[0] * parts[1]);  // pointwise wants dense operands
  const Graph last = make_views(graph);
  for (const Node& node : last.nodes()) {
    if (std::string(node.op->name) != "split") continue;
    for (ValueId out : node.out) EXPECT_FALSE(last.value(out).view.has_value());
  }

  Graph first;
  const auto rows = split_evenly(first.input("x", {DType::kF32, {4, 8}}), 0, 2);  // dense parts: anyone can read them
  first.output("y", rows[0] * rows[1]);
  const Graph views = make_views(first);
  for (ValueId out : views.node(0).out) EXPECT_TRUE(views.value(out).view.has_value());
}
}  // namespace
}  // namespace linnet
