#include <gtest/gtest.h>
#include "base/error.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/pointwise/pointwise.h"
#include "op_harness.h"

namespace linnet {
namespace {
// Rows that are read twice, as by two experts; groups of few and of many rows, and some that no row chooses.
TEST(GroupedMatmul, ComputesWhatRowsChoose) {
  if (testing::tested_backend()) GTEST_SKIP() << "experts run on the CPU alone";
  for (const bool transposed : {true, false})
    for (const int64_t rows : {3, 40})
      testing::check_op({.inputs = {{{rows, 16}}, {{5 * (transposed ? 24 : 16), transposed ? 16 : 24}},
                             {.shape = {2 * rows}, .integer = true, .low = 1, .high = 4}},
          .build =
              [=](Graph&, const auto& x) {
                return std::vector{grouped_matmul(x[0], x[1], x[2], {.groups = 5, .transposed = transposed})};
              },
          .bf16_tolerance = 2e-2});
}

TEST(GroupedMatmul, OneGroupMayHaveMoreRowsThanAreTakenAtOnce) {
  if (testing::tested_backend()) GTEST_SKIP() << "experts run on the CPU alone";
  testing::check_op({.inputs = {{{1100, 8}}, {{2 * 8, 8}}, {.shape = {1100}, .integer = true, .low = 1, .high = 2}},
      .build = [](Graph&,
                   const auto& x) { return std::vector{square(grouped_matmul(x[0], x[1], x[2], {.groups = 2}))}; },
      .differentiate = false});
}

TEST(GroupedMatmul, RefusesShapesAndChoicesThatDoNotFit) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {3, 4}}), w = graph.input("w", {DType::kF32, {8, 4}});
  const auto choices = [&](const char* name, int64_t count) { return graph.input(name, {DType::kI32, {count}}); };
  EXPECT_THROW(grouped_matmul(x, w, choices("few", 4), {.groups = 2}), Error);
  EXPECT_THROW(grouped_matmul(x, w, choices("three", 3), {.groups = 3}), Error);
  const Tensor y = grouped_matmul(x, w, choices("choice", 3), {.groups = 2});
  EXPECT_EQ(y.shape(), (Shape{3, 4}));
}
}  // namespace
}  // namespace linnet
