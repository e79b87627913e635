#include <gtest/gtest.h>
#include "engine/exec/interpreter.h"
#include "engine/ops/cache/cache.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/passes/passes.h"
#include "error_of.h"

namespace linnet {
namespace {
NamedTensors one_input(std::vector<double> values) {
  NamedTensors inputs;
  inputs["x"] = HostTensor({DType::kF64, {static_cast<int64_t>(values.size())}}, std::span<const double>(values));
  return inputs;
}

std::vector<double> gradient_of(const std::function<Tensor(Tensor)>& loss, std::vector<double> at) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF64, {static_cast<int64_t>(at.size())}});
  graph.output("dx", gradients(sum_to(loss(x), {}), std::array{x})[0]);
  return interpret(graph, one_input(std::move(at))).outputs.at("dx").values();
}

TEST(Gradient, AValueUsedTwiceGetsBothParts) {
  EXPECT_EQ(gradient_of([](Tensor x) { return x * x + x * 3.0; }, {1, 2}), (std::vector<double>{5, 7}));
}

TEST(Gradient, OnlyTheUsedPartOfASplitFlows) {
  EXPECT_EQ(gradient_of(
                [](Tensor x) {
                  return split(x, 0, {1, 2})[1] * 2.0;
                },
                {1, 2, 3}),
      (std::vector<double>{0, 2, 2}));
}

// Each slice alone would add a gradient of the whole tensor: time and memory in the square of their number.
TEST(Gradient, SlicesOfOneTensorAreJoinedOnce) {
  constexpr int kSlices = 64;
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF64, {kSlices}});
  Tensor sum = slice(x, 0, 0, 1) * 0.0;
  for (int i = 0; i < kSlices; ++i) sum = sum + slice(x, 0, i, 1) * static_cast<double>(i);
  sum = sum + sum_to(slice(x, 0, 1, 3), {1});  // overlaps the others
  const NodeId before = graph.node_count();
  graph.output("dx", gradients(sum_to(sum, {}), std::array{x})[0]);
  int joins = 0;
  for (NodeId id = before; id < graph.node_count(); ++id) joins += graph.node(id).op == &kConcat;
  EXPECT_LE(joins, 3);
  std::vector<double> at(kSlices, 1), wanted(kSlices);
  for (int i = 0; i < kSlices; ++i) wanted[static_cast<size_t>(i)] = i + (i >= 1 && i <= 3);
  EXPECT_EQ(interpret(graph, one_input(at)).outputs.at("dx").values(), wanted);
}

TEST(Gradient, WhatTheLossDoesNotDependOnHasZeros) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF64, {2}}), y = graph.input("y", {DType::kF64, {3}});
  graph.output("dy", gradients(sum_to(x, {}), std::array{y})[0]);
  NamedTensors inputs = one_input({1, 2});
  inputs["y"] = HostTensor({DType::kF64, {3}});
  EXPECT_EQ(interpret(graph, inputs).outputs.at("dy").values(), (std::vector<double>{0, 0, 0}));
}

TEST(Gradient, AnOpWithoutOneIsAnErrorThatNamesItsLine) {
  Graph graph;
  const Tensor cache = graph.input("cache", {DType::kF64, {1, 2, 3}}),
               row = graph.input("row", {DType::kF64, {1, 1, 3}});
  const Tensor written = cache_write(cache, row, graph.input("at", {DType::kI32, {1}}));
  const std::string line = std::to_string(__LINE__ - 1);
  EXPECT_EQ(error_of([&] { gradients(sum_to(written, {}), std::array{row}); }, ErrorKind::kShape),
      "gradient_test.cpp:" + line + ": cache_write: the op has no gradient");
  // No path from a wanted value leads through it: no error.
  EXPECT_NO_THROW(gradients(sum_to(written * row, {}), std::array{graph.input("other", {DType::kF64, {1}})}));
}

TEST(Gradient, IsTakenOfAScalar) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF64, {2}});
  EXPECT_THROW(gradients(x, std::array{x}), Error);
}

TEST(Gradient, NodesKeepTheLineAndModuleOfTheirForwardNode) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF64, {2, 3}});
  const ScopeId outer = graph.enter_scope("layers.3");
  const Tensor row = graph.input("row", {DType::kF64, {3}});
  const Tensor y = x * row;
  const int line = __LINE__ - 1;
  graph.set_scope(outer);
  const NodeId forward = graph.node_count();
  gradients(sum_to(y, {}), std::array{row});
  int from_product = 0;
  for (NodeId id = forward; id < graph.node_count(); ++id)
    from_product +=
        static_cast<int>(graph.node(id).where.line) == line && graph.scope_path(graph.node(id).scope) == "layers.3";
  EXPECT_EQ(from_product, 3);  // the products for x and for row, and the sum of the latter over rows
}
}  // namespace
}  // namespace linnet
