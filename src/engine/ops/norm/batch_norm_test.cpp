#include <gtest/gtest.h>
#include "engine/ops/norm/norm.h"
#include "op_harness.h"

namespace linnet {
namespace {
void check(Shape shape, double center, double tolerance) {
  SCOPED_TRACE(shape.text());
  const testing::OpInput parameter{.shape = {shape[-1]}, .full = true};
  testing::check_op({.inputs = {{.shape = shape, .center = center}, parameter, parameter},
      .build = [](Graph&, const auto& in) { return std::vector{batch_norm(in[0], in[1], in[2]).y}; },
      .tolerance = tolerance,
      .bf16_tolerance = center == 0 ? 3e-2 : 0});
}

TEST(BatchNorm, ValuesAndGradients) {
  check({7, 3}, 0, 2e-5);
  check({4, 5, 6, 17}, 0, 2e-5);
  check({3, 40, 30, 16}, 0, 2e-5);  // several chunks
  check({700, 64}, 0, 2e-5);
}

// The mean is 100 deviations: squares around 0 would lose four digits of the variance.
TEST(BatchNorm, AMeanFarFromZeroCostsLittle) { check({2, 30, 40, 33}, 60, 2e-3); }
}  // namespace
}  // namespace linnet
