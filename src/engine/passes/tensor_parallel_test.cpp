// Which parameters a model's forward graph lets the ranks of a tensor group divide, and what each rank computes.
#include "engine/passes/tensor_parallel.h"
#include <gtest/gtest.h>
#include "engine/ops/attention/attention.h"
#include "engine/ops/collective/collective.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/norm/norm.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"
#include "error_of.h"

namespace linnet {
namespace {
constexpr int64_t kRows = 2, kLength = 3, kWidth = 8, kHeads = 2, kHidden = 16, kClasses = 601;

class Net {
 public:
  Tensor x() { return input("x", {kRows, kLength, kWidth}); }
  Tensor input(const std::string& name, Shape shape) { return graph.input(name, {DType::kF32, std::move(shape)}); }
  Tensor parameter(const std::string& name, Shape shape) {
    parameters.insert(name);
    return input(name, std::move(shape));
  }
  Tensor linear(Tensor x, const std::string& name, int64_t out) {
    return matmul(x, parameter(name, {out, x.dim(-1)}), false, true) + parameter(name + ".bias", {out});
  }
  ModelDivision divide(Tensor result, int ranks = 2, int rank = 0) {
    const std::vector<ValueId> results{result.id};
    return choose_division(graph, results, parameters, {rank, ranks});
  }

  Graph graph;
  std::set<std::string> parameters;
};

int count_of(const Graph& graph, const OpDef& op) {
  return static_cast<int>(std::ranges::count_if(graph.nodes(), [&](const Node& node) { return is(node, op); }));
}

TEST(TensorParallel, APairOfLinearLayersIsDividedByColumnsAndByRows) {
  Net net;
  const Tensor y = net.linear(gelu(net.linear(net.x(), "in", kHidden)), "out", kWidth);
  const ModelDivision division = net.divide(y);
  const std::map<std::string, Sharding> expected{{"in", Sharding::cut(0, {kHidden})},
      {"in.bias", Sharding::cut(0, {kHidden})}, {"out", Sharding::cut(1, {kHidden})}};
  EXPECT_EQ(division.parameters, expected);

  Graph rank;
  const std::vector<ValueId> results{y.id};
  const Tensor found =
      append_of_rank(net.graph, results, division, rank, [&](const std::string& name, TensorType type) {
        if (name == "in") EXPECT_EQ(type.shape, (Shape{kHidden / 2, kWidth}));
        if (name == "out") EXPECT_EQ(type.shape, (Shape{kWidth, kHidden / 2}));
        return rank.input(name, std::move(type));
      })[0];
  EXPECT_EQ(found.shape(), y.shape());
  EXPECT_EQ(count_of(rank, kAllReduce), 1);
  EXPECT_EQ(count_of(rank, kShare), 1);
  // Backward there is one sum more, of the gradient of what both ranks have read.
  const Tensor x{&rank, *rank.find_input("x")};
  rank.output("y", found);
  rank.output("dx", gradients(sum_to(found, {}), std::vector{x})[0]);
  EXPECT_EQ(count_of(remove_dead_code(rank), kAllReduce), 2);
  EXPECT_EQ(count_of(remove_dead_code(rank), kShare), 0);
}

// A norm needs whole rows: the layer before it is whole too, and what follows is divided again.
TEST(TensorParallel, ALayerBeforeANormIsWhole) {
  Net net;
  Tensor x = gelu(net.linear(net.x(), "dense", kWidth));
  x = layer_norm(x, net.parameter("weight", {kWidth}), net.parameter("shift", {kWidth}));
  const ModelDivision division = net.divide(net.linear(relu(net.linear(x, "in", kHidden)), "out", kWidth));
  EXPECT_FALSE(division.parameters.contains("dense"));
  EXPECT_FALSE(division.parameters.contains("weight"));
  EXPECT_TRUE(division.parameters.contains("in"));
  EXPECT_TRUE(division.parameters.contains("out"));
}

Tensor attention_net(Net& net, int64_t heads) {
  const std::vector<Tensor> qkv = split(net.linear(net.x(), "qkv", 3 * kWidth), -1, {kWidth, kWidth, kWidth});
  return net.linear(attention(qkv[0], qkv[1], qkv[2], {.heads = heads, .causal = true}), "out", kWidth);
}

// The fused projection is cut in three, so that each rank has the same heads of queries, keys and values.
TEST(TensorParallel, AttentionIsDividedByHeads) {
  Net net;
  const ModelDivision division = net.divide(attention_net(net, kHeads));
  EXPECT_EQ(division.parameters.at("qkv"), Sharding::cut(0, {kWidth, kWidth, kWidth}));
  EXPECT_EQ(division.parameters.at("qkv.bias"), Sharding::cut(0, {kWidth, kWidth, kWidth}));
  EXPECT_EQ(division.parameters.at("out"), Sharding::cut(1, {kWidth}));
}

TEST(TensorParallel, HeadsThatRanksCannotShareEvenlyAreRefused) {
  Net net;
  const Tensor y = attention_net(net, kHeads);
  EXPECT_PRED2(has_text, error_of([&] { net.divide(y, 4); }), "heads = 2 cannot be divided between 4 tensor ranks");
}

// One table for words and for the head; 601 rows are 300 and 301.
TEST(TensorParallel, AVocabularyIsDividedByRowsAndByClasses) {
  Net net;
  const TensorType ids{DType::kI32, {kRows, kLength}};
  const Tensor table = net.parameter("words", {kClasses, kWidth});
  const Tensor hidden = embedding(table, net.graph.input("tokens", ids));
  const Tensor loss = linear_cross_entropy_sum(hidden, table, std::nullopt, net.graph.input("targets", ids));
  const ModelDivision division = net.divide(loss, 2, 1);
  EXPECT_EQ(division.parameters.at("words"), Sharding::cut(0, {kClasses}));
  Graph rank;
  const std::vector<ValueId> results{loss.id};
  append_of_rank(net.graph, results, division, rank, [&](const std::string& name, TensorType type) {
    if (name == "words") EXPECT_EQ(type.shape, (Shape{301, kWidth}));
    return rank.input(name, std::move(type));
  });
  for (const Node& node : rank.nodes()) {
    if (is(node, kEmbedding)) EXPECT_EQ(node.attrs.as<EmbeddingAttrs>().first_row, 300);
    if (is(node, kLinearCrossEntropy)) EXPECT_EQ(node.attrs.as<LinearCrossEntropyAttrs>().all_classes, kClasses);
  }
}

// The rows and columns that a rank has, among those of the whole.
TEST(TensorParallel, RunsOfElementsOfAPartMakeUpThePart) {
  const Shape whole{2, 10};
  const Sharding sharding = Sharding::cut(1, {6, 4});
  std::vector<int64_t> elements;
  for_runs(whole, sharding, {1, 2}, [&](int64_t in_whole, int64_t in_part, int64_t count) {
    EXPECT_EQ(in_part, static_cast<int64_t>(elements.size()));
    for (int64_t i = 0; i < count; ++i) elements.push_back(in_whole + i);
  });
  EXPECT_EQ(elements, (std::vector<int64_t>{3, 4, 5, 8, 9, 13, 14, 15, 18, 19}));
  EXPECT_EQ(local_shape(whole, sharding, {1, 2}), (Shape{2, 5}));
}
}  // namespace
}  // namespace linnet
