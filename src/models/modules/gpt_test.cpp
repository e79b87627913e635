#include "models/modules/gpt.h"

#include <gtest/gtest.h>

#include <cmath>

#include "training/trainer/learner.h"

namespace linnet {
namespace {

constexpr int64_t kBatch = 2, kLength = 12;

GptConfig small_gpt() {
  return {.vocab_size = 30, .max_seq_len = 16, .width = 32, .heads = 4, .layers = 2, .dropout = 0};
}

std::vector<int32_t> row_of_tokens(int32_t salt) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < kBatch * kLength; ++i) tokens.push_back((i * 7 + i * i * salt) % 30);
  return tokens;
}

TEST(Gpt, HasGpt2sParameters) {
  Gpt model(GptConfig{});
  EXPECT_EQ(model.parameter_count(), 124'439'808);
}

TEST(Gpt, StartsNearTheLogarithmOfTheVocabulary) {
  Gpt model(small_gpt());
  SingleShapeLearner learner(model, [&](Trace& trace) { return gpt_loss(model, trace, kBatch, kLength); });
  learner.set<int32_t>("tokens", row_of_tokens(1));
  learner.set<int32_t>("targets", row_of_tokens(2));
  EXPECT_NEAR(learner.evaluate(), std::log(30.0), 0.1 * std::log(30.0));
}

TEST(Gpt, LearnsABatchByHeart) {
  Gpt model(small_gpt());
  TrainerOptions options;
  options.optimizer.kind = OptimizerAttrs::Kind::kAdam;
  SingleShapeLearner learner(
      model, [&](Trace& trace) { return gpt_loss(model, trace, kBatch, kLength); }, options);
  learner.set<int32_t>("tokens", row_of_tokens(1));
  learner.set<int32_t>("targets", row_of_tokens(2));
  for (int i = 0; i < 300; ++i) learner.step(3e-3);
  EXPECT_LT(learner.evaluate(), 0.05);
}

// The loss of the first tokens does not change with what comes after them.
TEST(Gpt, NoTokenSeesALaterOne) {
  Gpt model(small_gpt());
  SingleShapeLearner learner(model, [&](Trace& trace) { return gpt_loss(model, trace, kBatch, kLength); });
  std::vector<int32_t> tokens = row_of_tokens(1), targets(kBatch * kLength, -1);
  for (int32_t t = 0; t < 5; ++t) targets[static_cast<size_t>(t)] = t + 3;
  learner.set<int32_t>("targets", targets);
  learner.set<int32_t>("tokens", tokens);
  const double before = learner.evaluate();
  for (size_t t = 5; t < kLength; ++t) tokens[t] = 29 - tokens[t];
  learner.set<int32_t>("tokens", tokens);
  EXPECT_DOUBLE_EQ(learner.evaluate(), before);
  tokens[4] = (tokens[4] + 1) % 30;
  learner.set<int32_t>("tokens", tokens);
  EXPECT_NE(learner.evaluate(), before);
}

}  // namespace
}  // namespace linnet
