#include <gtest/gtest.h>
#include <limits>
#include "engine/kernels/optimizer.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/optimizer/optimizer.h"
#include "engine/ops/pointwise/pointwise.h"
#include "op_harness.h"

namespace linnet {
namespace {
using testing::OpCase;

// Two steps from drawn codes; the second one, which starts from the codes of the first, is a result by itself if
// `of_codes`. `gradient` is a factor: NaN makes the steps not finite.
OpCase step_case(OptimizerAttrs attrs, int64_t n, bool of_codes, double gradient = 1) {
  attrs.kind = OptimizerAttrs::Kind::kAdam8bit;
  const Shape flat{n}, blocks{moment_blocks(n)};
  return {.inputs = {{.shape = flat, .full = true}, {.shape = flat, .high = 256, .byte = true},
              {.shape = blocks, .center = 0.2, .spread = 0.1, .full = true},
              {.shape = flat, .low = 1, .high = 256, .byte = true},
              {.shape = blocks, .center = 0.5, .spread = 0.2, .full = true}, {.shape = flat, .full = true},
              {.shape = flat, .full = true}},
      .build =
          [=](Graph& graph, const std::vector<Tensor>& x) {
            const DType dtype = x[0].type().dtype;
            std::vector<Tensor> old{x.begin(), x.begin() + 5};
            if (attrs.ema_decay > 0) old.push_back(x[5]);
            const Tensor d = x[6] * gradient, rate = fill(graph, {dtype, {1}}, 0.01),
                         step = fill(graph, {dtype, {1}}, 3);
            const std::vector<Tensor> next = optimizer_step(
                old, d, sum_of_squares(d), fill(graph, {dtype, {}}, 4), concat(rate, std::array{step}, 0), attrs);
            std::vector<Tensor> results{next[0], next[2], next[4]};
            if (attrs.ema_decay > 0) results.push_back(next[5]);
            if (!of_codes) return results;
            const Tensor second = fill(graph, {dtype, {1}}, 4);
            const std::vector<Tensor> last = optimizer_step(
                next, d, sum_of_squares(d), fill(graph, {dtype, {}}, 4), concat(rate, std::array{second}, 0), attrs);
            results.push_back(last[0] - next[0]);
            return results;
          },
      // A value between two codes may be rounded to either.
      .tolerance = of_codes ? 5e-3 : 2e-5,
      .differentiate = false};
}

TEST(Adam8bit, EveryKindAsAnOp) {
  for (OptimizerAttrs attrs :
      {OptimizerAttrs{}, OptimizerAttrs{.weight_decay = 0.1}, OptimizerAttrs{.weight_decay = 0.1, .decoupled = true},
          OptimizerAttrs{.decoupled = true, .clip_norm = 0.5, .ema_decay = 0.9}})
    for (const int64_t n : {7, 512, 1000})
      for (const bool of_codes : {false, true}) {
        SCOPED_TRACE(Attrs(attrs).text());
        attrs.decay_count = n / 2 + 1;
        testing::check_op(step_case(attrs, n, of_codes));
      }
}

TEST(Adam8bit, AStepThatIsNotFiniteChangesNothing) {
  for (const double gradient : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    testing::check_op(step_case({.ema_decay = 0.9}, 512, false, gradient));
}

TEST(Adam8bit, MomentsTakeLittleMoreThanTwoBytesAParameter) {
  const int64_t n = 1'000'000;
  const size_t bytes = 2 * (moment_codes_type(n).bytes() + moment_scales_type(n, DType::kF32).bytes());
  EXPECT_LE(static_cast<double>(bytes), 2.1 * static_cast<double>(n));
}
}  // namespace
}  // namespace linnet
