#include "engine/ops/movement/movement.h"
#include <gtest/gtest.h>
#include <cmath>
#include <limits>
#include "base/error.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/passes/passes.h"
#include "op_harness.h"

namespace linnet {
namespace {
using testing::check_op;

TEST(Movement, ReshapeSplitConcatAndPermute) {
  check_op({.inputs = {{{2, 3, 4}}}, .build = [](Graph&, const auto& x) {
              return std::vector{reshape(exp(x[0]), {4, 6})};
            }});
  for (int axis : {0, 1, 2})
    check_op({.inputs = {{{2, 4, 6}}, {{2, 4, 6}}}, .build = [=](Graph&, const auto& x) {
                auto parts = split_evenly(x[0] * x[1], axis, 2);
                return std::vector{parts[1] * 2.0, concat(parts[1], std::array{parts[0], exp(parts[0])}, axis)};
              }});
  check_op({.inputs = {{{2, 3, 4, 5}}}, .build = [](Graph&, const auto& x) {
              return std::vector{permute(x[0] * 3.0, {2, 0, 3, 1})};
            }});
}

// x * stop(x): the gradient is that of a product with a constant.
TEST(Movement, NothingFlowsBackThroughStopGradient) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {3}});
  graph.output("dx", gradients(sum_to(x * stop_gradient(square(x)), {}), std::array{x})[0]);
  const HostTensor values({DType::kF32, {3}}, std::span<const float>(std::array{1.f, 2.f, 3.f}));
  for (const NamedTensors& outputs : testing::run_everywhere(graph, {{"x", values}})) {
    const std::vector<double> expected{1, 4, 9};
    EXPECT_EQ(outputs.at("dx").values(), expected);
  }
}

TEST(Movement, SliceTakesItsPart) {
  check_op({.inputs = {{{5, 6}}}, .build = [](Graph&, const auto& x) {
              return std::vector{slice(exp(x[0]), 0, 1, 3), slice(x[0], 1, 2, 2)};
            }});
}

// More than one block of a GPU's threads; words of 16, 8, 4 and 2 bytes; strides on both sides.
TEST(Movement, LargeAndOddSizes) {
  for (int64_t width : {64, 66, 67}) {
    check_op({.inputs = {{{9, 7, width}}, {{9, 7, width}}},
        .build =
            [=](Graph&, const auto& x) {
              auto parts = split(x[0] * x[1], 2, {4, width - 5, 1});
              return std::vector{exp(parts[1]), concat(parts[1], std::array{parts[2], parts[0], parts[1]}, 2),
                  permute(parts[1], {1, 2, 0}), permute(x[1], {1, 0, 2})};
            },
        .bf16_tolerance = 1e-2});
    check_op({.inputs = {{{width}}, {{11, 1}}},
        .build =
            [=](Graph&, const auto& x) {
              return std::vector{broadcast_to(x[0], {11, width}), broadcast_to(x[1], {11, width})};
            },
        .bf16_tolerance = 1e-2});
  }
}

TEST(Movement, CastRoundsToNearestEven) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {8}});
  graph.output("y", cast(cast(x, DType::kBF16), DType::kF32));
  const float infinity = std::numeric_limits<float>::infinity();
  const float odd = 1 + 0x1p-7f, half = 0x1p-8f;
  HostTensor values({DType::kF32, {8}});
  const std::array<float, 8> in{
      1 + half, odd + half, 1 + half + 0x1p-20f, -0.0f, infinity, 0x1.fffffep127f, NAN, 0x1p-130f};
  std::copy(in.begin(), in.end(), values.as<float>().begin());
  const HostTensor out = interpret(graph, {{"x", values}}).outputs.at("y");
  const std::array<float, 8> expected{1, odd + 0x1p-7f, odd, -0.0f, infinity, infinity, NAN, 0x1p-130f};
  for (int i = 0; i < 8; ++i) {
    if (std::isnan(expected[i])) EXPECT_TRUE(std::isnan(out[i]));
    else EXPECT_EQ(out[i], expected[i]) << i;
  }
  EXPECT_TRUE(std::signbit(out[3]));
  EXPECT_THROW(cast(graph.input("i", {DType::kI32, {2}}), DType::kBF16), Error);
}

TEST(Movement, CastsOfNumbersRoundTowardsZeroAndStayInRange) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {6}});
  graph.output("i", cast(cast(x, DType::kI32), DType::kF32));
  graph.output("u", cast(cast(cast(x, DType::kF64), DType::kU8), DType::kF64));
  const std::array<float, 6> in{-2.7F, -0.5F, 2.7F, 300.9F, 3e10F, NAN};
  const NamedTensors outputs =
      interpret(graph, {{"x", HostTensor({DType::kF32, {6}}, std::span<const float>(in))}}).outputs;
  EXPECT_EQ(outputs.at("i").values(), (std::vector<double>{-2, 0, 2, 300, 2147483648., 0}));
  EXPECT_EQ(outputs.at("u").values(), (std::vector<double>{0, 0, 2, 255, 255, 0}));
}

TEST(Movement, CastsBetweenNumbers) {
  check_op(
      {.inputs = {{.shape = {2, 9}, .low = -300, .high = 300}, {.shape = {7}, .integer = true, .low = -9, .high = 9}},
          .build =
              [](Graph&, const auto& x) {
                const DType dtype = x[0].type().dtype;
                return std::vector{
                    cast(cast(x[0], DType::kI32), dtype), cast(cast(x[0], DType::kU8), dtype), cast(x[1], dtype)};
              },
          .differentiate = false});
}

TEST(Movement, BroadcastAndItsMirror) {
  for (const Shape& small :
      {Shape{}, Shape{4}, Shape{3, 4}, Shape{2, 1, 1}, Shape{2, 3, 1}, Shape{2, 1, 4}, Shape{1, 3, 1}}) {
    check_op({.inputs = {{small}}, .build = [](Graph&, const auto& x) {
                return std::vector{broadcast_to(x[0], {2, 3, 4})};
              }});
    check_op(
        {.inputs = {{{2, 3, 4}}}, .build = [=](Graph&, const auto& x) { return std::vector{sum_to(x[0], small)}; }});
  }
  check_op({.inputs = {{{700, 30}}}, .build = [](Graph&, const auto& x) { return std::vector{sum_to(x[0], {30})}; }});
  check_op({.inputs = {{{5, 9}}}, .build = [](Graph&, const auto& x) { return std::vector{log_sum_exp_last(x[0])}; }});
}

TEST(Movement, WrongSizesAreNamed) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {4, 6}});
  EXPECT_THROW(reshape(x, {5, 5}), Error);
  EXPECT_THROW(split(x, 0, {1, 2}), Error);
  EXPECT_THROW(permute(x, {0, 0}), Error);
  EXPECT_THROW(broadcast_to(x, {4, 7}), Error);
  EXPECT_THROW(concat(x, std::array{graph.input("y", {DType::kF32, {4, 5}})}, 0), Error);
}
}  // namespace
}  // namespace linnet
