#include <gtest/gtest.h>
#include "engine/ops/norm/norm.h"
#include "engine/ops/pointwise/pointwise.h"
#include "op_harness.h"

namespace linnet {
namespace {
enum class Wanted { kSum, kNormal, kBoth };

void check(Shape shape, float probability, Wanted wanted) {
  const int64_t width = shape[-1];
  testing::check_op({.inputs = {{shape}, {shape}, {.shape = {width}, .full = true}, {.shape = {width}, .full = true},
                         {.shape = {4}, .integer = true, .low = 0, .high = 1000}},
      .build =
          [=](Graph&, const auto& x) {
            const ResidualNormAttrs attrs{.norm = {.epsilon = 1e-3}, .probability = probability, .site = 9};
            const auto [sum, normal] = residual_norm(x[0], x[1], x[2], x[3], x[4], attrs);
            if (wanted == Wanted::kBoth) return std::vector{sum, normal};
            return std::vector{wanted == Wanted::kSum ? sum : normal};
          },
      .tolerance = 1e-4,
      .bf16_tolerance = 2e-2});
}

TEST(ResidualNorm, ValuesAndGradientsWithAndWithoutDropout) {
  for (float probability : {0.0f, 0.3f})
    for (int64_t width : {1, 2, 7, 16, 33, 128}) check({3, 5, width}, probability, Wanted::kBoth);
}

TEST(ResidualNorm, ValuesAndGradientsOfWideRows) {
  for (int64_t width : {31, 256, 260, 768, 1600, 8200}) check({3, 3, width}, 0.2f, Wanted::kBoth);
}

TEST(ResidualNorm, TheSumAndItsNormAreUsedTogetherOrAlone) {
  for (const Wanted wanted : {Wanted::kSum, Wanted::kNormal}) check({4, 24}, 0.2f, wanted);
}

TEST(ResidualNorm, OfRootMeanSquareAndWithoutParameters) {
  for (const float probability : {0.0f, 0.3f})
    for (const bool with_weight : {false, true})
      testing::check_op(
          {.inputs = {{{3, 5, 33}}, {{3, 5, 33}}, {{33}}, {.shape = {4}, .integer = true, .low = 0, .high = 1000}},
              .build =
                  [=](Graph&, const auto& x) {
                    ResidualNormAttrs attrs{.probability = probability, .site = 9};
                    attrs.norm = {.epsilon = 1e-3, .has_weight = with_weight, .has_bias = false};
                    attrs.norm.centered = !with_weight;
                    const auto [sum, normal] = residual_norm(x[0], x[1], x[2], {}, x[3], attrs);
                    return std::vector{sum, normal * x[2]};
                  },
              .tolerance = 1e-4});
}

TEST(ResidualNorm, ManyRowsAddUpInAFixedOrder) { check({20, 50, 24}, 0.1f, Wanted::kBoth); }
}  // namespace
}  // namespace linnet
