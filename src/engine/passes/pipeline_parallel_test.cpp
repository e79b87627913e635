#include <gtest/gtest.h>
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/passes/tensor_parallel.h"
#include "error_of.h"

namespace linnet {
namespace {
// Products with the matrices w.0, w.1, ..., each in a block of its own, and with a mask that no parameter is read for.
struct Chain {
  explicit Chain(const std::vector<int64_t>& widths) {
    Tensor x = graph.input("x", {DType::kF32, {4, widths[0]}});
    const Tensor mask = graph.input("mask", {DType::kF32, {4, 1}}) * 2.0;
    for (size_t i = 0; i + 1 < widths.size(); ++i) {
      const std::string name = "w." + std::to_string(i);
      const ScopeId outer = graph.enter_scope(name);
      const Tensor weight = graph.input(name, {DType::kF32, {widths[i], widths[i + 1]}});
      trained.insert(name);
      x = matmul(x, weight) * mask;
      graph.set_scope(outer);
    }
    results = {sum_all(x).id};
  }
  static Tensor sum_all(Tensor x) { return sum_to(x, {}); }
  Graph graph;
  std::set<std::string> trained;
  std::vector<ValueId> results;
};

TEST(PipelineCut, BalancesTheWorkOfTheStages) {
  // Products of 4 x 8 x 8, but for the last two, of 4 x 8 x 256 and 4 x 256 x 8.
  Chain chain({8, 8, 8, 8, 8, 256, 8});
  const PipelineCut cut = choose_cut(chain.graph, chain.results, chain.trained, 2);
  ASSERT_EQ(cut.gaps.size(), 1U);
  EXPECT_EQ(cut.gaps[0], 5);  // one of the two large products in each stage
  EXPECT_TRUE(cut.parameters[0].contains("w.4"));
  EXPECT_TRUE(cut.parameters[1].contains("w.5"));
  EXPECT_TRUE(cut.parameters[0].contains("mask") && cut.parameters[1].contains("mask"));
  EXPECT_NEAR(cut.work[0] + cut.work[1], 1, 1e-9);
}

// Embeddings of tokens and positions, before two blocks.
struct Embedded {
  explicit Embedded(int64_t rows) {
    const Tensor x = graph.input("x", {DType::kF32, {rows, 8}});
    const Tensor positions = parameter("positions", {8}) * 2.0;
    Tensor hidden = matmul(x, parameter("tokens", {8, 8})) + positions;
    for (const char* block : {"h.0", "h.1"}) {
      const ScopeId outer = graph.enter_scope(block);
      hidden = matmul(hidden, parameter(block, {8, 8}));
      graph.set_scope(outer);
    }
    results = {sum_to(hidden, {}).id};
  }
  Tensor parameter(const std::string& name, const Shape& shape) {
    trained.insert(name);
    return graph.input(name, {DType::kF32, shape});
  }
  Graph graph;
  std::set<std::string> trained;
  std::vector<ValueId> results;
};

// With one row all that crosses between the embeddings has one size, with several it has not.
TEST(PipelineCut, DoesNotDependOnTheBatch) {
  const Embedded one(1), many(64);
  const PipelineCut cut = choose_cut(one.graph, one.results, one.trained, 4);
  EXPECT_EQ(cut.gaps, (std::vector{0, 1, 2}));
  for (const Embedded* model : {&one, &many}) {
    Graph graph;
    const auto input = [&](const std::string& name, const TensorType& type) { return graph.input(name, type); };
    append_of_stage(model->graph, model->results, model->trained, cut, {0, 4}, graph, input);
    EXPECT_TRUE(graph.find_input("positions") && graph.find_input("tokens"));
  }
}

// A norm behind the encoder goes with it, and an embedding before the decoder with that.
TEST(PipelineCut, CutsBetweenEncoderAndDecoder) {
  Graph graph;
  std::set<std::string> trained;
  const auto product = [&](Tensor x, const std::string& scope, int64_t width) {
    const ScopeId outer = graph.enter_scope(scope);
    const Tensor weight = graph.input(scope, {DType::kF32, {x.dim(1), width}});
    trained.insert(scope);
    const Tensor result = matmul(x, weight);
    graph.set_scope(outer);
    return result;
  };
  Tensor memory = graph.input("source", {DType::kF32, {4, 8}});
  for (const char* layer : {"encoder.layers.0", "encoder.layers.1"}) memory = product(memory, layer, 8);
  memory = product(memory, "encoder.norm", 8);
  Tensor x = product(graph.input("target", {DType::kF32, {4, 8}}), "embedding", 8);
  for (int layer = 0; layer < 6; ++layer) x = product(x, "decoder.layers." + std::to_string(layer), 8) * memory;
  const std::vector<ValueId> results{sum_to(x, {}).id};
  const PipelineCut cut = choose_cut(graph, results, trained, 2, /*splits_encoder=*/true);
  EXPECT_EQ(
      cut.parameters[0], (std::set<std::string>{"source", "encoder.layers.0", "encoder.layers.1", "encoder.norm"}));
  EXPECT_TRUE(cut.parameters[1].contains("embedding") && cut.parameters[1].contains("decoder.layers.0"));
  Chain chain({8, 8, 8, 8});
  EXPECT_THROW(choose_cut(chain.graph, chain.results, chain.trained, 2, true), Error);
}

TEST(PipelineCut, RefusesMoreStagesThanThereAreLayers) {
  Chain chain({8, 8, 8});
  EXPECT_NO_THROW(choose_cut(chain.graph, chain.results, chain.trained, 4));
  EXPECT_EQ(error_of([&] { choose_cut(chain.graph, chain.results, chain.trained, 5); }),
      "pipeline=5: the model has 2 layers to cut between");
}

TEST(PipelineCut, StagesHandOnWhatLaterOnesRead) {
  Chain chain({8, 8, 8, 8});
  const PipelineCut cut = choose_cut(chain.graph, chain.results, chain.trained, 3);
  for (int stage = 0; stage < 3; ++stage) {
    Graph graph;
    const auto input = [&](const std::string& name, const TensorType& type) { return graph.input(name, type); };
    const StageEnds ends = append_of_stage(chain.graph, chain.results, chain.trained, cut, {stage, 3}, graph, input);
    EXPECT_EQ(ends.in.size(), stage > 0 ? 1U : 0U);
    EXPECT_EQ(ends.out.size(), stage < 2 ? 1U : 0U);
    EXPECT_EQ(ends.results.size(), stage == 2 ? 1U : 0U);
    EXPECT_TRUE(graph.find_input("mask").has_value());  // its product is computed on each
    EXPECT_EQ(graph.find_input("x").has_value(), stage == 0);
  }
}
}  // namespace
}  // namespace linnet
