#include "engine/ops/optimizer/optimizer.h"
#include <gtest/gtest.h>
#include <cmath>
#include <limits>
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "op_harness.h"

namespace linnet {
namespace {
using testing::OpCase;
using Kind = OptimizerAttrs::Kind;

Graph step_graph(const OptimizerAttrs& attrs, DType dtype, int64_t n) {
  Graph graph;
  const auto state = [&](const char* name) { return graph.input(name, {dtype, {n}}); };
  std::vector<Tensor> old{state("parameters"), state("moment1")};
  if (attrs.kind == Kind::kAdam) old.push_back(state("moment2"));
  if (attrs.ema_decay > 0) old.push_back(state("ema"));
  const Tensor gradient = state("gradient");
  const std::vector<Tensor> next = optimizer_step(old, gradient, sum_of_squares(gradient),
      graph.input("count", {dtype, {}}), graph.input("control", {dtype, {2}}), attrs);
  for (size_t i = 0; i < old.size(); ++i) graph.update(old[i], next[i]);
  return graph;
}

NamedTensors inputs(DType dtype, int64_t n, double scale = 1) {
  NamedTensors in;
  const auto fill = [&](const char* name, Shape shape, auto value) {
    HostTensor tensor({dtype, shape});
    for (int64_t i = 0; i < shape.elements(); ++i) {
      const auto v = static_cast<float>(value(i));
      if (dtype == DType::kF32) tensor.as<float>()[static_cast<size_t>(i)] = v;
      else tensor.as<double>()[static_cast<size_t>(i)] = v;
    }
    in[name] = std::move(tensor);
  };
  fill("parameters", {n}, [](int64_t i) { return std::sin(static_cast<double>(i)); });
  fill("moment1", {n}, [](int64_t i) { return 0.1 * std::cos(static_cast<double>(i)); });
  fill("moment2", {n}, [](int64_t i) { return 0.01 + 0.001 * static_cast<double>(i % 7); });
  fill("ema", {n}, [](int64_t i) { return 0.5 * static_cast<double>(i % 3); });
  fill("gradient", {n}, [&](int64_t i) { return scale * std::sin(static_cast<double>(3 * i + 1)); });
  fill("count", {}, [](int64_t) { return 4.0; });
  fill("control", {2}, [](int64_t i) { return i == 0 ? 0.01 : 3.0; });
  return in;
}

TEST(Optimizer, FastAndReferenceAgreeForEveryKind) {
  const int64_t n = 1003;
  for (OptimizerAttrs attrs :
      {OptimizerAttrs{}, OptimizerAttrs{.weight_decay = 0.1}, OptimizerAttrs{.weight_decay = 0.1, .decoupled = true},
          OptimizerAttrs{.ema_decay = 0.9}, OptimizerAttrs{.kind = Kind::kSgd, .momentum = 0.9, .weight_decay = 0.1},
          OptimizerAttrs{.kind = Kind::kSgd, .clip_norm = 0.5, .ema_decay = 0.99},
          OptimizerAttrs{.kind = Kind::kLion, .beta2 = 0.99, .weight_decay = 0.1}}) {
    SCOPED_TRACE(Attrs(attrs).text());
    attrs.decay_count = 500;
    const auto exact = interpret(step_graph(attrs, DType::kF64, n), inputs(DType::kF64, n)).states;
    const auto fast = interpret(
        step_graph(attrs, DType::kF32, n), inputs(DType::kF32, n), {.kernels = KernelSet::kFast, .threads = 2})
                          .states;
    for (const auto& [name, tensor] : exact) EXPECT_LE(testing::distance(fast.at(name), tensor), 1e-6) << name;
  }
}

// As an op like any other, so that devices take part; the states' new values are results. The first element of `scale`
// is the gradient's factor: NaN makes the step not finite.
OpCase step_case(const OptimizerAttrs& attrs, int64_t n, double gradient = 1) {
  const Shape flat{n};
  return {.inputs = {{flat}, {flat}, {.shape = flat, .center = 1, .spread = 0.5}, {flat}, {flat}},
      .build =
          [=](Graph& graph, const std::vector<Tensor>& x) {
            const DType dtype = x[0].type().dtype;
            std::vector<Tensor> old{x[0], x[1]};
            if (attrs.kind == Kind::kAdam) old.push_back(x[2]);
            if (attrs.ema_decay > 0) old.push_back(x[3]);
            const Tensor d = x[4] * gradient, rate = fill(graph, {dtype, {1}}, 0.01),
                         step = fill(graph, {dtype, {1}}, 3);
            return optimizer_step(
                old, d, sum_of_squares(d), fill(graph, {dtype, {}}, 4), concat(rate, std::array{step}, 0), attrs);
          },
      .differentiate = false};
}

TEST(Optimizer, EveryKindAsAnOp) {
  for (OptimizerAttrs attrs : {OptimizerAttrs{}, OptimizerAttrs{.weight_decay = 0.1},
           OptimizerAttrs{.weight_decay = 0.1, .decoupled = true}, OptimizerAttrs{.clip_norm = 0.5, .ema_decay = 0.9},
           OptimizerAttrs{.kind = Kind::kSgd, .momentum = 0.9, .weight_decay = 0.1},
           OptimizerAttrs{.kind = Kind::kSgd, .clip_norm = 0.5, .ema_decay = 0.99},
           OptimizerAttrs{.kind = Kind::kLion, .weight_decay = 0.1, .clip_norm = 0.5, .ema_decay = 0.9}})
    for (const int64_t n : {7, 1000, 1003}) {
      SCOPED_TRACE(Attrs(attrs).text());
      attrs.decay_count = n / 2 + 1;
      testing::check_op(step_case(attrs, n));
    }
}

TEST(Optimizer, AStepThatIsNotFiniteChangesNothingAsAnOp) {
  testing::check_op(step_case({.ema_decay = 0.9}, 100, std::numeric_limits<double>::quiet_NaN()));
}

TEST(Optimizer, FactorsOfAnUpdate) {
  for (const double squares : {0.0, 4.0, 1e6, std::numeric_limits<double>::infinity()})
    testing::check_op({.inputs = {{.shape = {}, .center = 1, .spread = 0.5, .full = true}},
        .build =
            [=](Graph& graph, const auto& x) {
              const DType dtype = x[0].type().dtype;
              const Tensor control = fill(graph, {dtype, {2}}, 5);
              const UpdateFactors f = update_factors(
                  x[0] * squares, fill(graph, {dtype, {}}, 4), control, {.clip_norm = 0.4, .ema_decay = 0.999});
              return std::vector{f.scale, f.finite, f.ema_rest};
            },
        .differentiate = false});
}

TEST(Optimizer, ManySquares) {
  for (const int64_t n : {3, 5000, 65536 + 4, 3 * 16384 + 65537})
    testing::check_op({.inputs = {{{n}}},
        .build = [](Graph&, const auto& x) { return std::vector{sum_of_squares(x[0])}; },
        .differentiate = false});
}

// An average with a constant decay of 0.999 would hold 67% of the first weights after 400 steps.
TEST(Optimizer, TheAverageForgetsTheFirstWeightsHoweverFewTheSteps) {
  Graph graph = step_graph({.kind = Kind::kSgd, .ema_decay = 0.999}, DType::kF32, 1);
  for (const int steps : {1, 10, 400}) {
    NamedTensors in = inputs(DType::kF32, 1, 0);
    in["moment1"].as<float>()[0] = 0;
    in["parameters"].as<float>()[0] = 1;  // a gradient of 0 leaves the parameter at 1
    in["ema"].as<float>()[0] = 0;         // 1 - share of the first weights in the average
    for (int step = 1; step <= steps; ++step) {
      in["control"].as<float>()[1] = static_cast<float>(step);
      for (auto& [name, tensor] : interpret(graph, in, {.kernels = KernelSet::kFast}).states) in[name] = tensor;
    }
    EXPECT_GT(in["ema"].as<float>()[0], steps == 1 ? 0.8 : 0.999) << steps << " steps";
  }
}

TEST(Optimizer, ClippingLimitsTheStepToTheNorm) {
  const int64_t n = 100;
  const OptimizerAttrs attrs{.kind = Kind::kSgd, .clip_norm = 0.25};
  const NamedTensors before = inputs(DType::kF64, n, 1000);
  const auto after = interpret(step_graph(attrs, DType::kF64, n), before).states.at("parameters");
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += std::pow(after[i] - before.at("parameters")[i], 2);
  EXPECT_NEAR(std::sqrt(squares), 0.01 * 0.25, 1e-6);
}

TEST(Optimizer, WeightDecayTouchesTheFirstElementsOnly) {
  OptimizerAttrs attrs{.kind = Kind::kSgd, .weight_decay = 0.5};
  attrs.decay_count = 2;
  const NamedTensors before = inputs(DType::kF64, 4, 0);
  const auto after = interpret(step_graph(attrs, DType::kF64, 4), before).states.at("parameters");
  for (int64_t i = 0; i < 4; ++i) {
    const double old = before.at("parameters")[i];
    EXPECT_NEAR(after[i], i < 2 ? old - 0.01 * 0.5 * old : old, 1e-8);
  }
}

TEST(Optimizer, AStepThatIsNotFiniteChangesNothing) {
  for (KernelSet kernels : {KernelSet::kFast, KernelSet::kReference}) {
    NamedTensors before = inputs(DType::kF32, 50);
    before["gradient"].as<float>()[7] = std::numeric_limits<float>::quiet_NaN();
    for (const auto& [name, tensor] :
        interpret(step_graph({.ema_decay = 0.9}, DType::kF32, 50), before, {.kernels = kernels}).states)
      EXPECT_EQ(tensor.values(), before.at(name).values()) << name;
  }
}

TEST(Optimizer, TheSumOfSquaresHasAGradient) {
  testing::check_op(
      {.inputs = {{{5, 7}}}, .build = [](Graph&, const auto& x) { return std::vector{sum_of_squares(x[0])}; }});
}
}  // namespace
}  // namespace linnet
