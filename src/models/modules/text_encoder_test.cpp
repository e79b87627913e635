#include "models/modules/text_encoder.h"
#include <gtest/gtest.h>
#include <cmath>
#include "training/trainer/learner.h"

namespace linnet {
namespace {
constexpr int64_t kBatch = 2, kLength = 12, kMasked = 4;

EncoderConfig small_bert() {
  return {.vocab_size = 40, .max_seq_len = 16, .width = 32, .heads = 4, .layers = 2, .hidden = 64, .dropout = 0};
}

struct Batch {
  std::vector<int32_t> tokens, lengths{9, 12}, positions{2, 7, 13, 20}, targets{5, 11, 38, -1};
  Batch() {
    for (int32_t i = 0; i < kBatch * kLength; ++i) tokens.push_back((i * 11 + 3) % 40);
  }
  void give(SingleShapeLearner& learner) const {
    learner.set<int32_t>("tokens", tokens);
    learner.set<int32_t>("lengths", lengths);
    learner.set<int32_t>("positions", positions);
    learner.set<int32_t>("targets", targets);
  }
};

LossFunction loss_of(MaskedLanguageModel& model) {
  return [&model](Trace& trace) { return masked_language_loss(model, trace, kBatch, kLength, kMasked); };
}

TEST(Bert, HasBertBasesParameters) {
  MaskedLanguageModel model(EncoderConfig{});
  EXPECT_EQ(model.parameter_count(), 109'514'298);
}

TEST(Bert, LearnsTheMaskedTokensByHeart) {
  MaskedLanguageModel model(small_bert());
  TrainerOptions options;
  options.optimizer.kind = OptimizerAttrs::Kind::kAdam;
  SingleShapeLearner learner(model, loss_of(model), options);
  Batch().give(learner);
  EXPECT_NEAR(learner.evaluate(), std::log(40.0), 0.1 * std::log(40.0));
  StepReport report{};
  for (int i = 0; i < 200; ++i) report = learner.step(2e-3);
  EXPECT_EQ(report.tokens, 3);  // the place without a target counts for nothing
  EXPECT_LT(learner.evaluate(), 0.05);
}

TEST(Bert, PaddingIsNotSeenButTheRestIs) {
  MaskedLanguageModel model(small_bert());
  SingleShapeLearner learner(model, loss_of(model));
  Batch batch;
  batch.give(learner);
  const double before = learner.evaluate();
  for (size_t t = 9; t < kLength; ++t) batch.tokens[t] = 1;  // past the first row's length
  batch.give(learner);
  EXPECT_DOUBLE_EQ(learner.evaluate(), before);
  batch.tokens[8] = 1;  // a later token than the masked ones: an encoder sees it
  batch.give(learner);
  EXPECT_NE(learner.evaluate(), before);
}
}  // namespace
}  // namespace linnet
