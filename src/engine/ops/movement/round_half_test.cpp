#include <gtest/gtest.h>
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "op_harness.h"

namespace linnet {
namespace {
TEST(RoundHalf, NumbersOfAllSizesAsAnOp) {
  for (const double spread : {1e-7, 1e-3, 1.0, 3e4})
    for (const int64_t n : {1, 33, 5000})
      testing::check_op({.inputs = {{.shape = {n}, .spread = spread}},
          .build = [](Graph&, const auto& x) { return std::vector{round_half(x[0])}; },
          .differentiate = false});
}

TEST(RoundHalf, TheOperandMayBeWrittenOver) {
  testing::check_op({.inputs = {{{300}}},
      .build = [](Graph&, const auto& x) { return std::vector{round_half(square(x[0]))}; },
      .differentiate = false});
}
}  // namespace
}  // namespace linnet
