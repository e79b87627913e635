#include "ops/optimizer/adam_8bit.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/optimizer_8bit.h"
#include "op_harness.h"
#include "ops/movement/movement.h"
#include "ops/pointwise/expression_builder.h"
#include "ops/pointwise/pointwise.h"

namespace linnet {
namespace {

using testing::OpCase;

// What the codes of a block stand for, in units of the scale.
Tensor decoded(const Tensor& codes, const Tensor& scales, bool is_signed) {
  const int64_t blocks = scales.shape().elements();
  const Tensor bytes = reshape(cast(codes, scales.type().dtype), {blocks, kMomentBlock});
  ExpressionBuilder e;
  const auto byte = e.input(0), wrapped = e.apply(Scalar::kSub, byte, e.constant(256));
  const auto code =
      is_signed ? e.apply(Scalar::kSelect, e.apply(Scalar::kGreater, byte, e.constant(127)), wrapped, byte) : byte;
  const auto law = e.apply(Scalar::kMul, code, e.apply(Scalar::kAbs, code));
  return pointwise(e.finish(e.apply(Scalar::kMul, law, e.input(1))), std::array{bytes, reshape(scales, {blocks, 1})},
                   SourceLine::current());
}

// A step from drawn codes; results are the parameters, the average and what the moments stand for. `gradient` is a
// factor: NaN makes the step not finite.
OpCase step_case(OptimizerAttrs attrs, int64_t n, double gradient = 1) {
  attrs.kind = OptimizerAttrs::Kind::kAdam8bit;
  const Shape flat{n}, blocks{moment_blocks(n)};
  return {.inputs = {{.shape = flat, .full = true},
                     {.shape = flat, .high = 256, .byte = true},
                     {.shape = blocks, .center = 0.2, .spread = 0.1, .full = true},
                     {.shape = flat, .low = 1, .high = 256, .byte = true},
                     {.shape = blocks, .center = 0.5, .spread = 0.2, .full = true},
                     {.shape = flat, .full = true},
                     {.shape = flat, .full = true}},
          .build =
              [=](Graph& graph, const std::vector<Tensor>& x) {
                const DType dtype = x[0].type().dtype;
                Adam8bitState old{x[0], x[1], x[2], x[3], x[4], {}};
                if (attrs.ema_decay > 0) old.ema = x[5];
                const Tensor d = x[6] * gradient, rate = fill(graph, {dtype, {1}}, 0.01),
                             step = fill(graph, {dtype, {1}}, 3);
                const Adam8bitState next = adam_8bit_step(old, d, sum_of_squares(d), fill(graph, {dtype, {}}, 4),
                                                          concat(rate, std::array{step}, 0), attrs);
                std::vector<Tensor> results{next.parameters, next.scales1, next.scales2};
                if (next.ema.defined()) results.push_back(next.ema);
                if (n % kMomentBlock == 0) {
                  results.push_back(decoded(next.codes1, next.scales1, true));
                  results.push_back(decoded(next.codes2, next.scales2, false));
                }
                return results;
              },
          // A value between two codes may be rounded to either.
          .tolerance = n % kMomentBlock == 0 ? 2e-3 : 2e-5,
          .differentiate = false};
}

TEST(Adam8bit, EveryKindAsAnOp) {
  for (OptimizerAttrs attrs :
       {OptimizerAttrs{}, OptimizerAttrs{.weight_decay = 0.1}, OptimizerAttrs{.weight_decay = 0.1, .decoupled = true},
        OptimizerAttrs{.decoupled = true, .clip_norm = 0.5, .ema_decay = 0.9}})
    for (const int64_t n : {7, 512, 1000}) {
      SCOPED_TRACE(Attrs(attrs).text());
      attrs.decay_count = n / 2 + 1;
      testing::check_op(step_case(attrs, n));
    }
}

TEST(Adam8bit, AStepThatIsNotFiniteChangesNothing) {
  for (const double gradient : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    testing::check_op(step_case({.ema_decay = 0.9}, 512, gradient));
}

TEST(Adam8bit, MomentsTakeLittleMoreThanTwoBytesAParameter) {
  const int64_t n = 1'000'000;
  const size_t bytes = 2 * (moment_codes_type(n).bytes() + moment_scales_type(n, DType::kF32).bytes());
  EXPECT_LE(static_cast<double>(bytes), 2.1 * static_cast<double>(n));
}

}  // namespace
}  // namespace linnet
