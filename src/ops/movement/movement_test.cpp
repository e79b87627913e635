#include "ops/movement/movement.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "op_harness.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"

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

TEST(Movement, SliceTakesItsPart) {
  check_op({.inputs = {{{5, 6}}}, .build = [](Graph&, const auto& x) {
              return std::vector{slice(exp(x[0]), 0, 1, 3), slice(x[0], 1, 2, 2)};
            }});
}

TEST(Movement, BroadcastAndItsMirror) {
  for (const Shape& small : {Shape{}, Shape{4}, Shape{3, 4}, Shape{2, 1, 1}, Shape{2, 3, 1}}) {
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
