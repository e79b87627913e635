#include "engine/ops/cross_entropy/cross_entropy.h"
#include <gtest/gtest.h>
#include <cmath>
#include "base/error.h"
#include "op_harness.h"

namespace linnet {
namespace {
using testing::check_op;

TEST(CrossEntropy, ValuesAndGradientsWithSmoothingAndIgnoredTargets) {
  for (double smoothing : {0.0, 0.1})
    for (int64_t classes : {2, 17, 33, 300, 1001, 5000})
      check_op({.inputs = {{.shape = {3, 5, classes}, .spread = 3},
                    {.shape = {3, 5}, .integer = true, .low = -1, .high = static_cast<int32_t>(classes)}},
          .build = [=](Graph&, const auto& x) { return std::vector{cross_entropy_sum(x[0], x[1], smoothing)}; },
          .bf16_tolerance = 2e-2});
}

TEST(CrossEntropy, ManyRowsOfFewClasses) {
  for (int64_t rows : {300, 5000})
    check_op({.inputs = {{.shape = {rows, 3}, .spread = 3}, {.shape = {rows}, .integer = true, .low = -1, .high = 3}},
        .build = [=](Graph&, const auto& x) { return std::vector{cross_entropy_sum(x[0], x[1], 0.1)}; },
        .bf16_tolerance = 2e-2});
}

TEST(CrossEntropy, UniformLogitsCostLogOfTheClasses) {
  Graph graph;
  graph.output(
      "y", cross_entropy_sum(graph.input("x", {DType::kF32, {2, 1000}}), graph.input("t", {DType::kI32, {2}}), 0.1));
  NamedTensors inputs;
  inputs["x"] = HostTensor({DType::kF32, {2, 1000}});
  inputs["t"] = HostTensor({DType::kI32, {2}});
  EXPECT_NEAR(interpret(graph, inputs, {.kernels = KernelSet::kFast}).outputs.at("y")[0], 2 * std::log(1000.0), 1e-3);
}

TEST(CrossEntropy, NanReachesTheLossAndMaskedClassesCostNothing) {
  for (const int64_t classes : {3, 400, 5000}) {
    Graph graph;
    graph.output(
        "y", cross_entropy_sum(graph.input("x", {DType::kF32, {1, classes}}), graph.input("t", {DType::kI32, {1}})));
    std::vector<float> logits(static_cast<size_t>(classes), -1000);
    logits[0] = logits[1] = 2;
    NamedTensors inputs;
    inputs["t"] = HostTensor({DType::kI32, {1}});
    inputs["x"] = HostTensor({DType::kF32, {1, classes}}, std::span<const float>(logits));
    for (const NamedTensors& out : testing::run_everywhere(graph, inputs))
      EXPECT_NEAR(out.at("y")[0], std::log(2.0), 1e-6) << classes;
    logits[2] = NAN;
    inputs["x"] = HostTensor({DType::kF32, {1, classes}}, std::span<const float>(logits));
    for (const NamedTensors& out : testing::run_everywhere(graph, inputs))
      EXPECT_TRUE(std::isnan(out.at("y")[0])) << classes;
  }
}

TEST(CrossEntropy, TargetsBeyondTheirLengthsAreMaskedAndNotCounted) {
  Graph graph;
  const Tensor masked = mask_targets(graph.input("t", {DType::kI32, {2, 3}}), graph.input("n", {DType::kI32, {2}}));
  graph.output("masked", masked);
  graph.output("count", count_targets(masked, DType::kF32));
  const std::vector<int32_t> targets{0, 5, 6, 7, 8, 9}, lengths{2, 3};
  NamedTensors inputs;
  inputs["t"] = HostTensor({DType::kI32, {2, 3}}, std::span<const int32_t>(targets));
  inputs["n"] = HostTensor({DType::kI32, {2}}, std::span<const int32_t>(lengths));
  const auto out = interpret(graph, inputs).outputs;
  EXPECT_EQ(out.at("masked").values(), (std::vector<double>{0, 5, -1, 7, 8, 9}));
  EXPECT_EQ(out.at("count")[0], 5);
}

TEST(CrossEntropy, ATargetOutsideTheVocabularyIsAnError) {
  Graph graph;
  graph.output("y", cross_entropy_sum(graph.input("x", {DType::kF32, {1, 4}}), graph.input("t", {DType::kI32, {1}})));
  const int32_t target = 4;
  NamedTensors inputs;
  inputs["x"] = HostTensor({DType::kF32, {1, 4}});
  inputs["t"] = HostTensor({DType::kI32, {1}}, std::span<const int32_t>(&target, 1));
  EXPECT_THROW(interpret(graph, inputs, {.kernels = KernelSet::kFast}), Error);
}
}  // namespace
}  // namespace linnet
