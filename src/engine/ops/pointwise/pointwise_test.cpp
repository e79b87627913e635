#include "engine/ops/pointwise/pointwise.h"
#include <gtest/gtest.h>
#include "engine/ops/reduce/reduce.h"
#include "engine/passes/passes.h"
#include "error_of.h"
#include "op_harness.h"

namespace linnet {
namespace {
using testing::check_op;

Tensor apply(Scalar function, const std::vector<Tensor>& x) {
  ExpressionBuilder e;
  std::vector<int> in{-1, -1, -1};
  for (size_t i = 0; i < x.size(); ++i) in[i] = e.input(static_cast<int>(i));
  return pointwise(e.finish(e.apply(function, in[0], in[1], in[2])), x, SourceLine::current());
}

TEST(Pointwise, EveryScalarFunctionAndItsDerivative) {
  for (Scalar function : {Scalar::kAdd, Scalar::kSub, Scalar::kMul, Scalar::kDiv, Scalar::kMax, Scalar::kMin,
           Scalar::kNeg, Scalar::kExp, Scalar::kLog, Scalar::kSqrt, Scalar::kRsqrt, Scalar::kReciprocal, Scalar::kTanh,
           Scalar::kSigmoid, Scalar::kErf, Scalar::kRelu, Scalar::kSquare, Scalar::kAbs, Scalar::kSin, Scalar::kCos,
           Scalar::kGreater, Scalar::kSelect, Scalar::kEqual, Scalar::kPow, Scalar::kAtan}) {
    SCOPED_TRACE(scalar_name(function));
    // log, sqrt and division want operands away from zero; the others see both signs.
    const bool positive = function == Scalar::kLog || function == Scalar::kSqrt || function == Scalar::kRsqrt ||
                          function == Scalar::kReciprocal || function == Scalar::kDiv || function == Scalar::kPow;
    std::vector<testing::OpInput> inputs(
        static_cast<size_t>(scalar_arity(function)), {.shape = {5, 7}, .center = positive ? 2.0 : 0.1, .spread = 1.5});
    check_op({.inputs = inputs, .build = [=](Graph&, const auto& x) { return std::vector{apply(function, x)}; }});
  }
}

// Steps: their derivative is 0 where it exists, which finite differences see away from the steps alone.
TEST(Pointwise, FloorAndRound) {
  for (const Scalar function : {Scalar::kFloor, Scalar::kRound})
    check_op({.inputs = {{.shape = {5, 70}, .spread = 5}},
        .build = [=](Graph&, const auto& x) { return std::vector{apply(function, x)}; },
        .differentiate = false});
  Graph graph;
  graph.output("y", apply(Scalar::kRound, {graph.input("x", {DType::kF32, {6}})}));
  const HostTensor halves({DType::kF32, {6}}, std::span<const float>(std::array{-2.5F, -1.5F, -.5F, .5F, 1.5F, 2.5F}));
  for (const NamedTensors& outputs : testing::run_everywhere(graph, {{"x", halves}}))
    EXPECT_EQ(outputs.at("y").values(), (std::vector<double>{-2, -2, 0, 0, 2, 2}));
}

TEST(Pointwise, GeluAndChains) {
  check_op({.inputs = {{.shape = {4, 33}, .spread = 4}},
      .build = [](Graph&, const auto& x) { return std::vector{gelu(x[0])}; }});
  check_op({.inputs = {{.shape = {3, 50}, .spread = 3}},
      .build = [](Graph&, const auto& x) { return std::vector{gelu_tanh(x[0])}; }});
  check_op({.inputs = {{{4, 33}}, {{4, 33}}},
      .build = [](Graph&, const auto& x) { return std::vector{exp(x[0] * 0.5) * x[1] + relu(x[0] - x[1]) * x[0]}; }});
}

// At 0 too, where a head that begins with zeros puts all of its logits.
TEST(Pointwise, TheDerivativeOfSoftplusIsTheSigmoid) {
  check_op({.inputs = {{.shape = {4, 33}, .spread = 4}},
      .build = [](Graph&, const auto& x) { return std::vector{softplus(x[0])}; }});
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {4}});
  const Tensor y = softplus(x);
  graph.output("y", y);
  graph.output("dx", gradients(sum_to(y, {}), std::span(&x, 1))[0]);
  const HostTensor values({DType::kF32, {4}}, std::span<const float>(std::array{0.F, -0.F, 90.F, -90.F}));
  for (const NamedTensors& outputs : testing::run_everywhere(graph, {{"x", values}})) {
    const std::vector<double> found = outputs.at("dx").values();
    EXPECT_NEAR(found[0], 0.5, 1e-7);
    EXPECT_NEAR(found[1], 0.5, 1e-7);
    EXPECT_NEAR(found[2], 1, 1e-7);
    EXPECT_NEAR(found[3], 0, 1e-7);
    EXPECT_NEAR(outputs.at("y").values()[0], 0.69314718, 1e-6);
  }
}

TEST(Pointwise, ScalarsRowsAndColumnsRepeat) {
  for (const Shape& small : {Shape{}, Shape{1}, Shape{6}, Shape{5, 6}, Shape{1, 6}, Shape{3, 1, 1}, Shape{3, 5, 1}})
    check_op({.inputs = {{{3, 5, 6}}, {small}},
        .build = [](Graph&, const auto& x) { return std::vector{x[0] * x[1] + x[1]}; }});
}

TEST(Pointwise, ShapesThatDoNotFitAreNamed) {
  Graph graph;
  const Tensor a = graph.input("a", {DType::kF32, {8, 16}}), b = graph.input("b", {DType::kF32, {8, 17}});
  EXPECT_PRED2(has_text, error_of([&] { a + b; }, ErrorKind::kShape), "cannot broadcast [8, 16] with [8, 17]");
}

TEST(Pointwise, AChainBecomesOneNode) {
  Graph graph;
  const Tensor a = graph.input("a", {DType::kF32, {8, 16}}), b = graph.input("b", {DType::kF32, {16}});
  graph.output("y", relu((a + b) * 2.0) - a);
  EXPECT_EQ(optimize(std::move(graph)).node_count(), 1);
}

TEST(Pointwise, AValueReadTwiceIsComputedOnce) {
  Graph graph;
  const Tensor a = graph.input("a", {DType::kF32, {8, 16}});
  const Tensor e = exp(a);
  graph.output("y", e + 1.0);
  graph.output("z", e * 2.0);
  EXPECT_EQ(optimize(std::move(graph)).node_count(), 3);
}

TEST(Pointwise, OperandsWithoutElementsHaveTheCommonShape) {
  Graph graph;
  const Tensor none = graph.input("x", {DType::kF32, {0, 1}}), row = graph.input("y", {DType::kF32, {1, 3}});
  EXPECT_EQ((none + row).shape(), (Shape{0, 3}));
  EXPECT_EQ((row + none).shape(), (Shape{0, 3}));
}
}  // namespace
}  // namespace linnet
