#include <gtest/gtest.h>
#include <cmath>
#include "base/error.h"
#include "engine/kernels/gemm/gemm.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/passes/passes.h"
#include "op_harness.h"

namespace linnet {
namespace {
using testing::check_op;
using testing::OpCase;

OpCase linear_case(Shape rows, int64_t width, int64_t classes, double smoothing, bool bias) {
  Shape hidden = rows;
  hidden.push_back(width);
  OpCase op{.inputs = {{hidden}, {.shape = {classes, width}, .full = true},
                {.shape = rows, .integer = true, .low = -1, .high = static_cast<int32_t>(classes)}},
      .build = [=](Graph&, const auto& x) {
        const auto row = bias ? std::optional<Tensor>(x[3]) : std::nullopt;
        return std::vector{linear_cross_entropy_sum(x[0], x[1], row, x[2], smoothing)};
      }};
  op.bf16_tolerance = testing::tested_backend() ? 0 : 3e-2;  // on a GPU the logits are bf16 too
  if (bias) op.inputs.push_back({.shape = {classes}, .full = true});
  return op;
}

TEST(LinearCrossEntropy, ValuesAndGradientsWithSmoothingBiasAndRowsLeftOut) {
  for (double smoothing : {0.0, 0.1})
    for (bool bias : {false, true})
      for (int64_t classes : {2, 17, 300}) check_op(linear_case({3, 5}, 12, classes, smoothing, bias));
}

TEST(LinearCrossEntropy, ManyRowsAreTakenInSeveralChunks) {
  OpCase op = linear_case({1600}, 4, 400, 0.1, true);
  op.differentiate = false;
  check_op(op);
}

// All rows left out: nothing to learn from, and nothing divided by zero.
TEST(LinearCrossEntropy, NoTargetsCostNothing) {
  OpCase op = linear_case({4}, 3, 7, 0.1, true);
  op.inputs[2].high = 0;
  check_op(op);
}

// The reference rounds where the kernel does.
TEST(LinearCrossEntropy, ProductsInBf16AreCloseToTheirReference) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {40, 64}}), w = graph.input("w", {DType::kF32, {70, 64}});
  const Tensor loss = linear_cross_entropy_sum(x, w, std::nullopt, graph.input("t", {DType::kI32, {40}}));
  const std::vector<Tensor> d = gradients(loss, std::array{x, w});
  graph.output("loss", loss);
  graph.output("dx", d[0]);
  graph.output("dw", d[1]);
  const Graph lowered = lower_precision(graph, Precision::kBf16, Precision::kBf16);
  NamedTensors inputs;
  for (const GraphInput& input : graph.inputs()) inputs[input.name] = HostTensor(graph.value(input.value).type);
  for (const char* name : {"x", "w"})
    for (int64_t i = 0; i < inputs.at(name).type().shape.elements(); ++i)
      inputs.at(name).as<float>()[static_cast<size_t>(i)] = std::sin(static_cast<float>(i) * 1.7f) / 4;
  const auto exact = interpret(graph, inputs).outputs, reference = interpret(lowered, inputs).outputs;
  const auto fast = interpret(lowered, inputs, {.kernels = KernelSet::kFast}).outputs;
  for (const auto& [name, tensor] : exact) {
    EXPECT_LE(testing::distance(fast.at(name), tensor), 1e-2) << name;
    if (gemm_has_bf16()) {
      EXPECT_LE(testing::distance(fast.at(name), reference.at(name)), 1e-3) << name;
    }
  }
  EXPECT_GT(testing::distance(reference.at("dw"), exact.at("dw")), 1e-4);  // it did round
}

TEST(LinearCrossEntropy, ATargetOutsideTheVocabularyIsAnError) {
  Graph graph;
  const Tensor hidden = graph.input("x", {DType::kF32, {1, 2}}), weight = graph.input("w", {DType::kF32, {4, 2}});
  graph.output("y", linear_cross_entropy_sum(hidden, weight, std::nullopt, graph.input("t", {DType::kI32, {1}})));
  const int32_t target = 4;
  NamedTensors inputs;
  inputs["x"] = HostTensor({DType::kF32, {1, 2}});
  inputs["w"] = HostTensor({DType::kF32, {4, 2}});
  inputs["t"] = HostTensor({DType::kI32, {1}}, std::span<const int32_t>(&target, 1));
  for (KernelSet kernels : {KernelSet::kFast, KernelSet::kReference})
    EXPECT_THROW(interpret(graph, inputs, {.kernels = kernels}), Error);
}

TEST(LinearCrossEntropy, ShapesThatDoNotFitAreNamed) {
  Graph graph;
  const auto f32 = [&](const char* name, Shape shape) { return graph.input(name, {DType::kF32, shape}); };
  const Tensor x = f32("x", {3, 4}), w = f32("w", {5, 4}), t = graph.input("t", {DType::kI32, {3}});
  EXPECT_THROW(linear_cross_entropy_sum(x, f32("w6", {5, 6}), std::nullopt, t), Error);
  EXPECT_THROW(linear_cross_entropy_sum(x, w, f32("b", {4}), t), Error);
  EXPECT_THROW(linear_cross_entropy_sum(x, w, std::nullopt, graph.input("t4", {DType::kI32, {4}})), Error);
}
}  // namespace
}  // namespace linnet
