#include <gtest/gtest.h>
#include "engine/ops/norm/norm.h"
#include "engine/ops/pointwise/pointwise.h"
#include "op_harness.h"

namespace linnet {
namespace {
TEST(LayerNorm, ValuesAndGradientsAtManyWidths) {
  for (int64_t width : {1, 2, 7, 16, 33, 128})
    testing::check_op({.inputs = {{{3, 5, width}}, {{width}}, {{width}}},
        .build = [](Graph&, const auto& x) { return std::vector{layer_norm(x[0], x[1], x[2], 1e-3)}; },
        .tolerance = 1e-4});
}

// Rows in the registers of a warp, of a block, or in none; in vectors and one by one; several blocks.
TEST(LayerNorm, ValuesAndGradientsOfWideRows) {
  for (int64_t width : {31, 255, 256, 384, 768, 1024, 1600, 5000, 8200})
    testing::check_op({.inputs = {{{9, width}}, {.shape = {width}, .full = true}, {.shape = {width}, .full = true}},
        .build = [](Graph&, const auto& x) { return std::vector{layer_norm(x[0], x[1], x[2], 1e-3)}; },
        .tolerance = 1e-4,
        .bf16_tolerance = 2e-2});
}

TEST(LayerNorm, WithoutWeightOrBias) {
  for (const bool with_weight : {false, true})
    testing::check_op({.inputs = {{{3, 5, 40}}, {{40}}}, .build = [=](Graph&, const auto& x) {
                         return std::vector{layer_norm(x[0], with_weight ? x[1] : Tensor{}, Tensor{}) + x[1]};
                       }});
}

TEST(RmsNorm, ValuesAndGradientsAtManyWidths) {
  for (int64_t width : {1, 2, 7, 16, 33, 128})
    testing::check_op({.inputs = {{{3, 5, width}}, {{width}}},
        .build = [](Graph&, const auto& x) { return std::vector{rms_norm(x[0], x[1], 1e-3)}; },
        .tolerance = 1e-4});
  testing::check_op({.inputs = {{{70, 24}}},
      .build = [](Graph&, const auto& x) { return std::vector{rms_norm(x[0], Tensor{})}; },
      .bf16_tolerance = 2e-2});
}

// On a GPU one kernel adds up the sums of up to 64 norms, of any widths, with weight, bias or both.
TEST(LayerNorm, ManyNormsOfOneGraph) {
  for (const size_t count : {3, 66}) {
    testing::OpCase trial{.tolerance = 1e-4};
    for (const int64_t width : {5, 45, 85})
      for (const Shape& shape : {Shape{20, width}, Shape{width}, Shape{width}}) trial.inputs.push_back({shape});
    trial.build = [count](Graph&, const auto& all) {
      std::vector<Tensor> results(3);
      for (size_t i = 0; i < count; ++i) {
        const Tensor x = all[i % 3 * 3], weight = all[i % 3 * 3 + 1], bias = all[i % 3 * 3 + 2];
        const Tensor y = i / 3 % 3 == 0   ? layer_norm(x, weight, bias)
                         : i / 3 % 3 == 1 ? rms_norm(x, weight)
                                          : layer_norm(x, Tensor{}, bias);
        Tensor& sum = results[i % 3];
        sum = sum.defined() ? sum + y : y;
      }
      return results;
    };
    testing::check_op(trial);
  }
}

TEST(LayerNorm, ManyRowsAddUpInAFixedOrder) {
  testing::check_op({.inputs = {{{1000, 24}}, {{24}}, {{24}}},
      .build = [](Graph&, const auto& x) { return std::vector{layer_norm(x[0], x[1], x[2])}; }});
}
}  // namespace
}  // namespace linnet
