#include "engine/ops/embedding/embedding.h"
#include <gtest/gtest.h>
#include "base/error.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/passes/passes.h"
#include "op_harness.h"

namespace linnet {
namespace {
using testing::check_op;

TEST(Embedding, RowsAreTakenAndTheirGradientsAddUp) {
  check_op({.inputs = {{{11, 6}}, {.shape = {3, 5}, .integer = true, .low = 0, .high = 11}},
      .build = [](Graph&, const auto& x) { return std::vector{embedding(x[0], x[1])}; }});
}

// Ids that come once, and far more often, of tables that a GPU adds to in two ways; in bf16 the table and its gradient
// stay fp32.
TEST(Embedding, ManyRowsOfFewAndOfManyIds) {
  for (const auto& [vocab, width] : {std::pair{3, 20}, {900, 33}, {50, 130}, {2000, 33}})
    check_op({.inputs = {{.shape = {vocab, width}, .full = true},
                  {.shape = {7, 60}, .integer = true, .low = 0, .high = vocab}, {{1}}},
        .build =
            [=](Graph& graph, const auto& x) {
              const TensorType rows{x[2].type().dtype, {7, 60, width}};
              return std::vector{graph.add_stored(kEmbedding, std::array{x[0], x[1]}, EmbeddingAttrs{},
                                     SourceLine::current(), std::array{rows})[0],
                  x[2] * 2.0};
            },
        .bf16_tolerance = 1e-2});
}

// More positions than one block of a GPU sorts.
TEST(Embedding, GradientsOfTenThousandPositions) {
  check_op({.inputs = {{.shape = {17, 4}, .full = true}, {.shape = {10, 1000}, .integer = true, .low = 0, .high = 17}},
      .build = [](Graph&, const auto& x) { return std::vector{embedding(x[0], x[1])}; }});
}

TEST(Embedding, ATableTiedToAProductGetsBothGradients) {
  check_op({.inputs = {{{13, 8}}, {.shape = {2, 4}, .integer = true, .low = 0, .high = 13}},
      .build = [](Graph&, const auto& x) { return std::vector{matmul(embedding(x[0], x[1]), x[0], false, true)}; }});
}

TEST(Embedding, LookupsOfThePaddingDoNotTrainTheTable) {
  Graph graph;
  const Tensor table = graph.input("t", {DType::kF32, {3, 2}}), ids = graph.input("i", {DType::kI32, {4}});
  graph.output("dt", gradients(sum_to(embedding(table, ids, 1), {}), std::array{table})[0]);
  NamedTensors inputs;
  inputs["t"] = HostTensor({DType::kF32, {3, 2}});
  inputs["i"] = HostTensor({DType::kI32, {4}}, std::span<const int32_t>(std::array{0, 1, 2, 2}));
  for (const NamedTensors& outputs : testing::run_everywhere(graph, inputs))
    EXPECT_EQ(outputs.at("dt").values(), (std::vector<double>{1, 1, 0, 0, 2, 2}));
}

// Ranks that divide the rows of a table: their lookups add up to the whole one, and each has its rows' gradient.
TEST(Embedding, PartsOfTheRowsAddUpToTheTable) {
  if (testing::tested_backend()) GTEST_SKIP() << "ranks divide tables on the CPU alone";
  constexpr int64_t kRows = 7, kWidth = 3, kPadding = 5;
  const std::array<int32_t, 5> ids{6, 0, 3, 5, 3};
  struct Found {
    std::vector<double> y, gradient;
  };
  const auto run = [&](KernelSet kernels, int64_t first, int64_t count) {
    Graph graph;
    EmbeddingAttrs attrs{.padding = kPadding};
    if (count < kRows) attrs.all_rows = kRows, attrs.first_row = first;
    const Tensor table = graph.input("t", {DType::kF32, {count, kWidth}}), i = graph.input("i", {DType::kI32, {5}});
    const Tensor y = graph.add_one(kEmbedding, std::array{table, i}, attrs, SourceLine::current());
    graph.output("y", y);
    graph.output("dt", gradients(sum_to(y * y, {}), std::array{table})[0]);
    NamedTensors inputs;
    inputs["t"] = HostTensor({DType::kF32, {count, kWidth}});
    for (int64_t j = 0; j < count * kWidth; ++j)
      inputs["t"].as<float>()[static_cast<size_t>(j)] = static_cast<float>(1 + first * kWidth + j);
    inputs["i"] = HostTensor({DType::kI32, {5}}, std::span<const int32_t>(ids));
    const auto outputs = interpret(graph, inputs, {.kernels = kernels}).outputs;
    return Found{outputs.at("y").values(), outputs.at("dt").values()};
  };
  for (const KernelSet kernels : {KernelSet::kFast, KernelSet::kReference}) {
    const Found whole = run(kernels, 0, kRows), low = run(kernels, 0, 3), high = run(kernels, 3, 4);
    for (size_t i = 0; i < whole.y.size(); ++i) EXPECT_EQ(low.y[i] + high.y[i], whole.y[i]);
    std::vector<double> gradient = low.gradient;
    gradient.insert(gradient.end(), high.gradient.begin(), high.gradient.end());
    EXPECT_EQ(gradient, whole.gradient);
  }
}

TEST(Embedding, AnIdOutsideTheTableIsAnError) {
  Graph graph;
  graph.output("y", embedding(graph.input("t", {DType::kF32, {4, 2}}), graph.input("i", {DType::kI32, {1}})));
  NamedTensors inputs;
  inputs["t"] = HostTensor({DType::kF32, {4, 2}});
  for (int32_t id : {-1, 4}) {
    inputs["i"] = HostTensor({DType::kI32, {1}}, std::span<const int32_t>(&id, 1));
    for (KernelSet kernels : {KernelSet::kFast, KernelSet::kReference})
      EXPECT_THROW(interpret(graph, inputs, {.kernels = kernels}), Error);
  }
}
}  // namespace
}  // namespace linnet
