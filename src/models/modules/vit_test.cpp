#include "models/modules/vit.h"
#include <gtest/gtest.h>
#include <cmath>
#include <string>
#include "error_of.h"
#include "models/nn/parameter_layout.h"
#include "training/trainer/learner.h"

namespace linnet {
namespace {
TEST(Vit, CountsOfParametersAreThoseOfThePublishedModels) {
  EXPECT_EQ(Vit(VitConfig{}).parameter_count(), 86'567'656);  // vit-base-patch16-224
  EXPECT_EQ(Vit(VitConfig{.width = 192, .heads = 3, .hidden = 768}).parameter_count(), 5'717'416);  // deit-tiny
}

TEST(Vit, SizesThatDoNotFitAreRefused) {
  const auto message = [](const VitConfig& config) { return error_of([&] { const Vit vit(config); }); };
  EXPECT_PRED2(
      has_text, message({.images = {30, 32, 3, 10}, .patch = 4}), "30 x 32 pixels cannot be cut into patches of 4 x 4");
  EXPECT_PRED2(has_text, message({.width = 64, .heads = 3}), "a width of 64 is not divisible by 3 heads");
}

// Which quarter of an image is bright: the patches' places are learned.
TEST(Vit, LearnsWhereABrightPatchIs) {
  constexpr int64_t kBatch = 8, kSide = 8;
  Vit vit({.images = {kSide, kSide, 1, 4}, .patch = 4, .width = 16, .heads = 2, .layers = 1, .hidden = 32});
  SingleShapeLearner learner(vit, [&](Trace& trace) { return image_loss(vit, trace, kBatch); });
  std::vector<uint8_t> images(kBatch * kSide * kSide, 30);
  std::vector<int32_t> labels;
  for (int64_t i = 0; i < kBatch; ++i) {
    labels.push_back(static_cast<int32_t>(i % 4));
    for (int64_t row = 0; row < 4; ++row)
      for (int64_t column = 0; column < 4; ++column)
        images[static_cast<size_t>((i * kSide + i % 4 / 2 * 4 + row) * kSide + i % 2 * 4 + column)] = 220;
  }
  learner.set<uint8_t>("images", images);
  learner.set<int32_t>("labels", labels);
  const double before = learner.evaluate();
  for (int64_t step = 1; step <= 150; ++step) learner.trainer().step(0, 3e-3, step);
  EXPECT_NEAR(before, std::log(4), 0.2);
  EXPECT_LT(learner.evaluate(), 0.1);
}
}  // namespace
}  // namespace linnet
