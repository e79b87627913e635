// passes/recompute.cpp on a whole step: less memory, the same bits.
#include <gtest/gtest.h>

#include "models/gpt.h"
#include "train/learner.h"

namespace linnet {
namespace {

constexpr int64_t kBatch = 4, kLength = 128;

struct Trained {
  std::vector<float> losses, parameters;
  size_t arena;
};

Trained train(const PassOptions& passes) {
  // Large enough that keeping a hidden layer's result is not worth its memory: 4 x 128 x 1024 floats.
  Gpt model({.vocab_size = 40, .max_seq_len = kLength, .width = 256, .heads = 4, .layers = 4, .dropout = 0});
  TrainerOptions options;
  options.passes = passes;
  Learner learner(
      model, [&](Trace& trace) { return gpt_loss(model, trace, kBatch, kLength); }, options);
  std::vector<int32_t> tokens, targets;
  for (int32_t i = 0; i < kBatch * kLength; ++i) tokens.push_back(i * 7 % 40), targets.push_back(i * i % 40);
  learner.set<int32_t>("tokens", tokens);
  learner.set<int32_t>("targets", targets);
  Trained result{{}, {}, learner.trainer().arena_use().first};
  for (int i = 0; i < 2; ++i) result.losses.push_back(static_cast<float>(learner.step(1e-2).loss));
  const auto values = learner.parameter("layers.0.linear1.weight");
  result.parameters.assign(values.begin(), values.end());
  return result;
}

TEST(Recompute, TakesLessMemoryForTheSameBits) {
  const Trained kept = train({.off = {"recompute"}}), again = train({});
  // The hidden results of two layers at least: the last one's backward pass follows at once, and gradients take the
  // room of what is no longer needed.
  EXPECT_LE(again.arena + 2 * (2u << 20), kept.arena);
  EXPECT_EQ(again.losses, kept.losses);
  EXPECT_EQ(again.parameters, kept.parameters);
}

}  // namespace
}  // namespace linnet
