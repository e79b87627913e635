#include "engine/ops/dropout/dropout.h"
#include <gtest/gtest.h>
#include "base/error.h"
#include "op_harness.h"

namespace linnet {
namespace {
NamedTensors inputs_at(int32_t step, int64_t rows) {
  NamedTensors inputs;
  inputs["x"] = HostTensor({DType::kF32, {rows, 1000}});
  for (float& v : inputs["x"].as<float>()) v = 1;
  const std::vector<int32_t> random{7, 0, step, 0};
  inputs["r"] = HostTensor({DType::kI32, {4}}, std::span<const int32_t>(random));
  return inputs;
}

Graph dropout_graph(float p, uint64_t site, int64_t rows = 20) {
  Graph graph;
  graph.output(
      "y", dropout(graph.input("x", {DType::kF32, {rows, 1000}}), graph.input("r", {DType::kI32, {4}}), p, site));
  return graph;
}

TEST(Dropout, ValuesAndGradientsShareOneMask) {
  for (float p : {0.1f, 0.5f})
    for (const Shape& shape : {Shape{3, 5, 11}, Shape{4, 640}})
      testing::check_op({.inputs = {{shape}, {.shape = {4}, .integer = true, .low = 0, .high = 1000}},
          .build = [=](Graph&, const auto& x) { return std::vector{dropout(x[0], x[1], p, 5)}; },
          .bf16_tolerance = 1e-2});
  testing::check_op({.inputs = {{{2, 3, 4, 13}}, {.shape = {4}, .integer = true, .low = 0, .high = 1000}},
      .build = [](Graph&,
                   const auto& x) { return std::vector{dropout(x[0], x[1], 0.3f, 5, DropoutLayout::kAttention)}; },
      .bf16_tolerance = 1e-2});
}

TEST(Dropout, KeepsTheMeanAndDropsTheAskedShare) {
  const auto y =
      interpret(dropout_graph(0.3f, 5), inputs_at(1, 20), {.kernels = KernelSet::kFast}).outputs.at("y").values();
  double sum = 0, zeros = 0;
  for (double v : y) sum += v, zeros += v == 0;
  EXPECT_NEAR(zeros / 20000, 0.3, 0.012);  // four standard deviations
  EXPECT_NEAR(sum / 20000, 1, 0.02);
}

TEST(Dropout, MasksDifferByStepAndSiteAndRepeatOtherwise) {
  const auto mask = [](int32_t step, uint64_t site) {
    return interpret(dropout_graph(0.5f, site), inputs_at(step, 20), {.kernels = KernelSet::kFast})
        .outputs.at("y")
        .values();
  };
  EXPECT_EQ(mask(1, 5), mask(1, 5));
  EXPECT_NE(mask(1, 5), mask(2, 5));
  EXPECT_NE(mask(1, 5), mask(1, 6));
  EXPECT_NE(dropout_site("encoder.layers.0", "dropout"), dropout_site("encoder.layers.1", "dropout"));
}

// Ranks that divide the columns of a tensor draw the masks of the whole.
TEST(Dropout, PartsOfTheColumnsHaveTheMaskOfTheWhole) {
  if (testing::tested_backend()) GTEST_SKIP() << "ranks divide tensors on the CPU alone";
  constexpr int64_t kSamples = 3, kRows = 5, kColumns = 48;
  const auto run = [&](KernelSet kernels, int64_t first, int64_t count) {
    Graph graph;
    DropoutAttrs attrs{.probability = 0.4f, .site = 9};
    if (count < kColumns) attrs.all_columns = kColumns, attrs.first_column = first;
    const Tensor x = graph.input("x", {DType::kF32, {kSamples, kRows, count}});
    graph.output("y",
        graph.add_one(kDropout, std::array{x, graph.input("r", {DType::kI32, {4}})}, attrs, SourceLine::current()));
    NamedTensors inputs = inputs_at(3, 1);
    inputs["x"] = HostTensor({DType::kF32, {kSamples, kRows, count}});
    for (float& v : inputs["x"].as<float>()) v = 1;
    return interpret(graph, inputs, {.kernels = kernels}).outputs.at("y").values();
  };
  for (const KernelSet kernels : {KernelSet::kFast, KernelSet::kReference}) {
    const auto whole = run(kernels, 0, kColumns);
    for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 8}, {8, 24}, {32, 16}}) {
      const auto part = run(kernels, first, count);
      for (int64_t row = 0; row < kSamples * kRows; ++row)
        for (int64_t j = 0; j < count; ++j)
          ASSERT_EQ(part[static_cast<size_t>(row * count + j)], whole[static_cast<size_t>(row * kColumns + first + j)]);
    }
  }
}

TEST(Dropout, AnImpossibleProbabilityIsAnError) {
  EXPECT_THROW(dropout_graph(1.0f, 5), Error);
  EXPECT_THROW(dropout_graph(-0.1f, 5), Error);
}
}  // namespace
}  // namespace linnet
