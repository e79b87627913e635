#include "engine/ops/rope/rope.h"
#include <gtest/gtest.h>
#include <cmath>
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "op_harness.h"

namespace linnet {
namespace {
TEST(Rope, ValuesAndGradientsWithAndWithoutPositions) {
  for (const bool with_positions : {false, true})
    for (const int64_t size : {2, 6, 64})
      testing::check_op({.inputs = {{{2, 5, 3 * size}}, {.shape = {2, 5}, .integer = true, .low = 0, .high = 1000}},
          .build =
              [=](Graph&, const auto& x) {
                return std::vector{
                    rope(x[0], {.heads = 2, .head_size = size, .theta = 500}, with_positions ? x[1] : Tensor{})};
              },
          .bf16_tolerance = 1e-2});
}

// A part of each head turns, and is scaled; the rest is copied.
TEST(Rope, OfAPartOfEachHead) {
  for (const int64_t turned : {2, 6}) {
    RopeScaling scaling{.kind = RopeScaling::Kind::kDivided, .magnitude = 1.25};
    for (int64_t i = 0; i < turned / 2; ++i) scaling.divisors.push_back(1 + 0.5F * static_cast<float>(i));
    testing::check_op({.inputs = {{{2, 5, 3 * 10}}},
        .build =
            [=](Graph&, const auto& x) {
              return std::vector{rope(x[0], {.heads = 2, .head_size = 10, .turned = turned, .scaling = scaling})};
            },
        .bf16_tolerance = 1e-2});
  }
}

// Angles stay exact far from the beginning.
TEST(Rope, AtFarPositions) {
  testing::check_op({.inputs = {{{2, 70, 3 * 32}}, {.shape = {2, 70}, .integer = true, .low = 100000, .high = 130000}},
      .build = [](Graph&, const auto& x) { return std::vector{rope(x[0], {.heads = 3, .head_size = 32}, x[1])}; }});
}

TEST(Rope, OneRowOfPositionsServesAll) {
  testing::check_op({.inputs = {{{3, 2, 12}}, {.shape = {1, 2}, .integer = true, .low = 0, .high = 50}},
      .build = [](Graph&, const auto& x) { return std::vector{rope(x[0], {.heads = 2, .head_size = 6}, x[1])}; }});
}

// A part of a fused projection, whose gradient is written in place.
TEST(Rope, OfPartsOfOneProjection) {
  testing::check_op({.inputs = {{{2, 5, 24}}},
      .build =
          [](Graph&, const auto& x) {
            const auto parts = split(x[0] * 1.5, -1, {16, 8});
            return std::vector{rope(parts[0], {.heads = 2, .head_size = 8}), parts[1] * 2.0};
          },
      .bf16_tolerance = 1e-2});
}

TEST(Rope, FrequenciesFollowTheScalingRules) {
  RopeAttrs attrs{.heads = 1, .head_size = 64, .theta = 500000};
  EXPECT_DOUBLE_EQ(rope_frequency(attrs, 16), std::pow(500000.0, -0.5));
  attrs.scaling = {.kind = RopeScaling::Kind::kLinear, .factor = 4};
  EXPECT_DOUBLE_EQ(rope_frequency(attrs, 0), 0.25);
  attrs.scaling = {.kind = RopeScaling::Kind::kLlama3, .factor = 8};
  EXPECT_DOUBLE_EQ(rope_frequency(attrs, 0), 1);                                    // many turns in 8192: stays
  EXPECT_DOUBLE_EQ(rope_frequency(attrs, 31), std::pow(500000.0, -62.0 / 64) / 8);  // less than one
  const double between = std::pow(500000.0, -34.0 / 64);                            // 1.23 turns
  EXPECT_LT(rope_frequency(attrs, 17), between);
  EXPECT_GT(rope_frequency(attrs, 17), between / 8);
}
}  // namespace
}  // namespace linnet
