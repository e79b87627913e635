#include "engine/ops/reduce/reduce.h"
#include <gtest/gtest.h>
#include <cmath>
#include "engine/exec/interpreter.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/passes/passes.h"
#include "op_harness.h"

namespace linnet {
namespace {
using testing::check_op;

Tensor reduced(Tensor x, Reduction kind, Shape shape) {
  return x.graph->add_one(kReduce, std::array{x}, ReduceAttrs{kind, shape}, SourceLine::current());
}

// Few and many, short and long, narrow and wide: how a GPU's kernels cut them differs.
TEST(Reduce, ColumnsAndRowsOfManySizes) {
  for (const auto& [rows, width] :
      {std::pair{1, 300}, {7, 1}, {301, 3}, {300, 36}, {67, 260}, {2100, 8}, {3, 1030}, {2, 9000}})
    check_op({.inputs = {{{rows, width}}},
        .build =
            [rows = rows, width = width](Graph&, const auto& x) {
              return std::vector{
                  sum_to(x[0], {width}), sum_to(x[0], {rows, 1}), log_sum_exp_last(x[0]), max_last(x[0])};
            },
        .bf16_tolerance = 1e-2});
}

TEST(Reduce, MiddleAxesOfManySizes) {
  for (const Shape& shape : {Shape{3, 5, 7}, Shape{2, 300, 4}, Shape{40, 2, 3, 33}, Shape{2, 2, 1100}, Shape{3, 0, 2}})
    check_op({.inputs = {{shape}},
        .build =
            [&](Graph&, const auto& x) {
              std::vector<Tensor> y{sum_to(x[0], with_size(shape, 1, 1))};
              if (shape.elements() > 0) y.push_back(max_to(x[0], with_size(shape, 1, 1)));
              if (shape.rank() == 4) y.push_back(sum_to(x[0], {1, 2, 1, 33})), y.push_back(max_to(x[0], {40, 1, 3, 1}));
              return y;
            },
        .bf16_tolerance = 1e-2});
}

TEST(Reduce, EqualElementsShareTheGradientOfTheLargest) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {2, 4}});
  graph.output("dx", gradients(sum_to(max_last(x) * 6.0, {}), std::array{x})[0]);
  const std::array<float, 8> numbers{1, 3, 3, 2, -5, -5, -5, -9};
  const NamedTensors inputs{{"x", HostTensor({DType::kF32, {2, 4}}, std::span<const float>(numbers))}};
  EXPECT_EQ(interpret(graph, inputs).outputs.at("dx").values(), (std::vector<double>{0, 3, 3, 0, 2, 2, 2, 0}));
}

TEST(Reduce, ToOneNumber) {
  for (int64_t count : {1, 1000, 40000})
    check_op({.inputs = {{.shape = {count}, .center = 0.5}},
        .build = [](Graph&, const auto& x) { return std::vector{sum_to(x[0], {})}; }});
}

TEST(Reduce, SumsOfBf16InFp32) {
  if (!testing::tested_backend()) GTEST_SKIP() << "on a device";
  check_op({.inputs = {{{600, 40}}},
      .build =
          [](Graph& graph, const auto& x) {
            if (x[0].type().dtype == DType::kF64) return std::vector{sum_to(x[0], {40})};
            return graph.add_stored(kReduce, std::array{cast(x[0], DType::kBF16)}, ReduceAttrs{Reduction::kSum, {40}},
                SourceLine::current(), std::array{TensorType{DType::kF32, {40}}});
          },
      .tolerance = 1e-2,
      .differentiate = false});
}

TEST(Reduce, MaximaAndLogSumsOfInfinitiesAndNan) {
  const float inf = INFINITY;
  for (int64_t count : {4, 2000, 20000}) {
    Graph graph;
    const Tensor x = graph.input("x", {DType::kF32, {4, count}});
    for (const auto& [name, kind] : {std::pair{"max", Reduction::kMax}, {"lse", Reduction::kLogSumExp}}) {
      graph.output(std::string(name) + " of rows", reduced(x, kind, {4, 1}));
      graph.output(std::string(name) + " of columns", reduced(permute(x, {1, 0}), kind, {4}));
      const Tensor half = reshape(x, {2, 2, count});
      graph.output(std::string(name) + " of the middle", reduced(permute(half, {0, 2, 1}), kind, {2, 1, 2}));
    }
    NamedTensors inputs;
    inputs["x"] = HostTensor({DType::kF32, {4, count}});
    float* at = inputs["x"].as<float>().data();
    for (int64_t i = 0; i < 4 * count; ++i) at[i] = -inf;
    at[count + count / 2] = 3;
    at[2 * count + 1] = inf, at[2 * count + count - 1] = 5;
    at[3 * count] = 1, at[3 * count + count / 2] = NAN;
    const std::vector<NamedTensors> results = testing::run_everywhere(graph, inputs);
    for (const NamedTensors& outputs : results)
      for (const auto& [name, y] : outputs) {
        EXPECT_EQ(y[0], -inf) << name;
        EXPECT_EQ(y[1], 3) << name;
        EXPECT_EQ(y[2], inf) << name;
        EXPECT_TRUE(std::isnan(y[3])) << name << " of " << count << ", kernels " << &outputs - results.data();
      }
  }
}
}  // namespace
}  // namespace linnet
