#include "engine/ops/matmul/matmul.h"
#include <gtest/gtest.h>
#include "base/error.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/passes/passes.h"
#include "op_harness.h"

namespace linnet {
namespace {
using testing::check_op;

TEST(Matmul, EveryTransposeOfAMatrixProduct) {
  for (bool ta : {false, true})
    for (bool tb : {false, true})
      check_op({.inputs = {{ta ? Shape{5, 7} : Shape{7, 5}}, {tb ? Shape{3, 5} : Shape{5, 3}}},
          .build = [=](Graph&, const auto& x) { return std::vector{matmul(x[0], x[1], ta, tb)}; },
          .bf16_tolerance = 2e-2});
}

TEST(Matmul, EveryTransposeOfABatchedProduct) {
  for (bool ta : {false, true})
    for (bool tb : {false, true})
      check_op({.inputs = {{ta ? Shape{2, 3, 5, 4} : Shape{2, 3, 4, 5}}, {tb ? Shape{2, 3, 6, 5} : Shape{2, 3, 5, 6}}},
          .build = [=](Graph&, const auto& x) { return std::vector{matmul(x[0], x[1], ta, tb)}; },
          .bf16_tolerance = 2e-2});
}

TEST(Matmul, LeadingAxesAreRows) {
  check_op({.inputs = {{{2, 3, 17}}, {{33, 17}}},
      .build = [](Graph&, const auto& x) { return std::vector{matmul(x[0], x[1], false, true)}; },
      .bf16_tolerance = 2e-2});
}

TEST(Matmul, BiasAndReluBecomeItsEpilogue) {
  const testing::OpCase op{.inputs = {{{4, 9, 16}}, {{24, 16}}, {{24}}},
      .build = [](Graph&, const auto& x) { return std::vector{relu(matmul(x[0], x[1], false, true) + x[2])}; }};
  check_op(op);
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {4, 16}}), w = graph.input("w", {DType::kF32, {24, 16}}),
               b = graph.input("b", {DType::kF32, {24}});
  graph.output("y", relu(matmul(x, w, false, true) + b));
  const Graph fused = optimize(std::move(graph));
  ASSERT_EQ(fused.node_count(), 1);
  EXPECT_EQ(fused.node(0).attrs.text(), "trans_b bias activation=relu");
}

TEST(Matmul, ActivationsAndTheirDerivativesJoinTheProducts) {
  for (Tensor (*function)(At) : {relu, gelu, gelu_tanh})
    for (const int64_t rows : {2, 20})  // few rows are computed in another way
      check_op({.inputs = {{{rows, 16}}, {{24, 16}}, {{24}}, {{33, 24}}}, .build = [=](Graph&, const auto& x) {
                  return std::vector{matmul(function(matmul(x[0], x[1], false, true) + x[2]), x[3], false, true)};
                }});
}

TEST(Matmul, ASumTakesTheProductInPlace) {
  check_op({.inputs = {{{8, 6}}, {{6, 10}}, {{8, 10}}},
      .build = [](Graph&, const auto& x) { return std::vector{matmul(x[0], x[1]) + x[2] * 2.0}; },
      .bf16_tolerance = 2e-2});
}

TEST(Matmul, ShapesThatDoNotFitAreNamed) {
  Graph graph;
  const Tensor a = graph.input("a", {DType::kF32, {2, 3}}), b = graph.input("b", {DType::kF32, {4, 5}});
  EXPECT_THROW(matmul(a, b), Error);
  const Tensor c = graph.input("c", {DType::kF32, {2, 3, 4}}), d = graph.input("d", {DType::kF32, {3, 4, 5}});
  EXPECT_THROW(matmul(c, d), Error);
}
}  // namespace
}  // namespace linnet
