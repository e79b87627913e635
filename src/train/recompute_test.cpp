// Recomputation on whole steps: less memory, the same bits.
#include <gtest/gtest.h>

#include "base/error.h"
#include "models/gpt.h"
#include "models/llama.h"
#include "models/transformer.h"
#include "models/translation_loss.h"
#include "train/learner.h"

namespace linnet {
namespace {

constexpr int64_t kBatch = 4, kLength = 128;

struct Trained {
  std::vector<float> losses, parameters;
  size_t arena, planned;
  Fit fit;
};

Trained train(CausalModel& model, const TrainerOptions& options, int32_t batch) {
  SingleShapeLearner learner(
      model, [&](Trace& trace) { return causal_loss(model, trace, batch, kLength); }, options);
  std::vector<int32_t> tokens, targets;
  for (int32_t i = 0; i < batch * kLength; ++i) tokens.push_back(i * 7 % 40), targets.push_back(i * i % 40);
  learner.set<int32_t>("tokens", tokens);
  learner.set<int32_t>("targets", targets);
  Trained result{{}, {}, learner.trainer().arena_use().first, learner.memory_bytes(), learner.trainer().largest_fit()};
  for (int i = 0; i < 2; ++i) result.losses.push_back(static_cast<float>(learner.step(1e-2).loss));
  const float* values = learner.trainer().state("parameters");
  result.parameters.assign(values, values + learner.trainer().layout().stored_count());
  return result;
}

Trained train(const TrainerOptions& options, double dropout = 0, int32_t batch = kBatch) {
  // Large enough that keeping a hidden layer's result is not worth its memory: 4 x 128 x 1024 floats.
  Gpt model({.vocab_size = 40, .max_seq_len = kLength, .width = 256, .heads = 4, .layers = 4, .dropout = dropout});
  return train(model, options, batch);
}

Trained train_llama(const TrainerOptions& options) {
  Llama model({.vocab_size = 40,
               .max_seq_len = kLength,
               .width = 256,
               .heads = 4,
               .layers = 3,
               .hidden = 1024,
               .kv_heads = 2,
               .attention_dropout = 0.1});
  return train(model, options, kBatch);
}

void expect_same_bits(const Trained& a, const Trained& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.parameters, b.parameters);
}

TEST(Recompute, TakesLessMemoryForTheSameBits) {
  const Trained kept = train({.passes = {.off = {"recompute"}}}), again = train({});
  // The hidden results of two layers at least: the last one's backward pass follows at once, and gradients take the
  // room of what is no longer needed.
  EXPECT_LE(again.arena + 2 * (2u << 20), kept.arena);
  expect_same_bits(kept, again);
}

TEST(RecomputeBlocks, TakesLessMemoryForTheSameBitsWithDropout) {
  for (const PassOptions& passes : {PassOptions{}, PassOptions{.precision = Precision::kBf16},
                                    PassOptions{.precision = Precision::kBf16, .storage_type = DType::kBF16}}) {
    SCOPED_TRACE(std::string(precision_name(passes.precision)) + (passes.storage_type ? " stored" : ""));
    TrainerOptions options{.passes = passes};
    const Trained none = train(options, 0.1);
    EXPECT_EQ(none.fit.text(), "");
    options.recompute = RecomputeMode::kAttention;
    const Trained attention = train(options, 0.1);
    options.recompute = RecomputeMode::kBlock;
    const Trained block = train(options, 0.1);
    expect_same_bits(none, attention);
    expect_same_bits(none, block);
    EXPECT_LT(attention.arena, none.arena);
    // With activations in bf16, the parameters' gradient in fp32 is most of so small a model's arena.
    if (!passes.storage_type) {
      EXPECT_LT(block.arena, attention.arena);
    }
    EXPECT_GT(block.fit.extra_work, attention.fit.extra_work);
  }
}

// A gated feed-forward part has two hidden results, and their product may be kept or computed again.
TEST(RecomputeBlocks, GatedLayersGiveTheSameBits) {
  const Trained none = train_llama({.recompute = RecomputeMode::kNone});
  expect_same_bits(none, train_llama({.passes = {.off = {"recompute"}}, .recompute = RecomputeMode::kNone}));
  const Trained attention = train_llama({.recompute = RecomputeMode::kAttention}),
                block = train_llama({.recompute = RecomputeMode::kBlock});
  expect_same_bits(none, attention);
  expect_same_bits(none, block);
  EXPECT_LT(block.arena, none.arena);
  EXPECT_GT(block.fit.extra_work, attention.fit.extra_work);
  TrainerOptions options;
  options.memory = block.planned + (none.planned - block.planned) / 2;
  const Trained limited = train_llama(options);
  EXPECT_LE(limited.planned, options.memory);
  expect_same_bits(none, limited);
}

// A step that is given less and less memory keeps each limit, does more and more work, and gives the same bits.
void expect_limits_are_kept(const PassOptions& passes) {
  // In bf16, the gradient in fp32 would be most of the memory of a batch of kBatch.
  const int32_t batch = passes.storage_type ? 3 * kBatch : kBatch;
  const Trained all = train({.passes = passes}, 0.1, batch);
  const size_t least = train({.passes = passes, .recompute = RecomputeMode::kBlock}, 0.1, batch).planned;
  double work = 0;
  for (const size_t tenths : {8, 4, 0}) {
    TrainerOptions options{.passes = passes};
    options.memory = least + (all.planned - least) / 10 * tenths;
    const Trained limited = train(options, 0.1, batch);
    EXPECT_LE(limited.planned, options.memory);
    EXPECT_GE(limited.fit.extra_work, work);
    work = limited.fit.extra_work;
    expect_same_bits(all, limited);
  }
  EXPECT_GT(work, 0.02);
}

TEST(FitMemory, KeepsEachLimitWithTheSameBits) {
  expect_limits_are_kept({});
  expect_limits_are_kept({.precision = Precision::kBf16, .storage_type = DType::kBF16});
}

TEST(FitMemory, NamesTheLeastThatWorks) {
  TrainerOptions options{.memory = 1 << 20};
  std::string message;
  try {
    train(options);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    message = error.what();
  }
  const size_t number = message.rfind(' ');
  ASSERT_NE(number, message.npos) << message;
  options.memory = std::stoull(message.substr(number));
  EXPECT_LE(train(options).planned, options.memory);
  EXPECT_GT(options.memory, 1u << 20);
}

}  // namespace
}  // namespace linnet
