// Recomputation on whole steps: less memory, the same bits.
#include <gtest/gtest.h>
#include <functional>
#include "error_of.h"
#include "models/modules/encoder_decoder.h"
#include "models/modules/t5.h"
#include "models/modules/text_decoder.h"
#include "models/modules/text_encoder.h"
#include "training/trainer/learner.h"

namespace linnet {
namespace {
constexpr int64_t kBatch = 4, kLength = 128;

struct Trained {
  std::vector<float> losses, parameters;
  size_t arena, planned;
  Fit fit;
};

// Two steps, and the inputs of all of them: name and values.
using Inputs = std::vector<std::pair<std::string, std::vector<int32_t>>>;

Trained train(const Module& model, const LossFunction& loss, const Inputs& inputs, const TrainerOptions& options) {
  SingleShapeLearner learner(model, loss, options);
  for (const auto& [name, values] : inputs) learner.set<int32_t>(name, values);
  const TrainerPlans& plans = learner.trainer().plans();
  Trained result{{}, {}, plans.arena_use().first, learner.memory_bytes(), plans.largest_fit()};
  for (int i = 0; i < 2; ++i) result.losses.push_back(static_cast<float>(learner.step(1e-2).loss));
  const float* values = learner.trainer().state().flat("parameters");
  result.parameters.assign(values, values + learner.trainer().state().layout().stored_count());
  return result;
}

std::vector<int32_t> some_tokens(int64_t count, int32_t step = 7) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back(i * step % 40);
  return tokens;
}

std::vector<int32_t> some_targets(int64_t count) {
  std::vector<int32_t> targets;
  for (int32_t i = 0; i < count; ++i) targets.push_back(i * i % 40);
  return targets;
}

Trained train(CausalModel& model, const TrainerOptions& options, int32_t batch) {
  return train(
      model, [&](Trace& trace) { return causal_loss(model, trace, batch, kLength); },
      {{"tokens", some_tokens(batch * kLength)}, {"targets", some_targets(batch * kLength)}}, options);
}

Trained train(const TrainerOptions& options, double dropout = 0, int32_t batch = kBatch) {
  // Large enough that keeping a hidden layer's result is not worth its memory: 4 x 128 x 1024 floats.
  TextDecoder model(
      {.vocab_size = 40, .max_seq_len = kLength, .width = 256, .heads = 4, .layers = 4, .dropout = dropout});
  return train(model, options, batch);
}

Trained train_llama(const TrainerOptions& options, int32_t batch = kBatch) {
  TextDecoder model(llama_kind({.vocab_size = 40,
      .max_seq_len = kLength,
      .width = 256,
      .heads = 4,
      .layers = 3,
      .hidden = 1024,
      .kv_heads = 2,
      .attention_dropout = 0.1}));
  return train(model, options, batch);
}

Trained train_bert(const TrainerOptions& options) {
  constexpr int64_t kMasked = 64;
  MaskedLanguageModel model(
      {.vocab_size = 40, .max_seq_len = kLength, .width = 256, .heads = 4, .layers = 2, .hidden = 1024});
  std::vector<int32_t> positions;
  for (int32_t i = 0; i < kMasked; ++i) positions.push_back(i * 8);
  return train(
      model, [&](Trace& trace) { return masked_language_loss(model, trace, kBatch, kLength, kMasked); },
      {{"tokens", some_tokens(kBatch * kLength)}, {"lengths", {128, 100, 128, 90}}, {"positions", positions},
          {"targets", some_targets(kMasked)}},
      options);
}

Trained train_t5(const TrainerOptions& options) {
  T5 model({.vocab_size = 40,
      .width = 128,
      .heads = 4,
      .head_size = 32,
      .hidden = 1024,
      .encoder_layers = 2,
      .decoder_layers = 2,
      .activation = Activation::kGeluTanh,
      .gated = true});
  constexpr int64_t kTokens = kBatch * kLength;
  return train(
      model,
      [&](Trace& trace) {
        return translation_loss(model, trace, {kBatch, kLength, kLength}, 0.1);
      },
      {{"source", some_tokens(kTokens)}, {"source_lengths", {128, 100, 128, 90}},
          {"target_in", some_tokens(kTokens, 11)}, {"target_out", some_targets(kTokens)},
          {"target_lengths", {128, 128, 70, 128}}},
      options);
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
           PassOptions{.precision = Precision::kBf16, .storage_type = DType::kBF16},
           PassOptions{.precision = Precision::kBf16, .int8 = true}}) {
    SCOPED_TRACE(
        std::string(passes.int8 ? "int8" : precision_name(passes.precision)) + (passes.storage_type ? " stored" : ""));
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

const PassOptions kStoredInBf16{.precision = Precision::kBf16, .storage_type = DType::kBF16};

// Every mode, several limits, and each with the pass `recompute` and without it: one loss, one set of weights.
void expect_one_result(const std::function<Trained(const TrainerOptions&)>& train, const PassOptions& passes) {
  const auto with = [&](RecomputeMode mode, size_t memory, bool single_nodes) {
    TrainerOptions options{.passes = passes, .recompute = mode, .memory = memory};
    if (!single_nodes) options.passes.off.insert("recompute");
    return train(options);
  };
  const Trained none = with(RecomputeMode::kNone, 0, false);
  size_t least = none.planned;
  for (const bool single_nodes : {false, true}) {
    SCOPED_TRACE(single_nodes ? "single nodes too" : "blocks alone");
    expect_same_bits(none, with(RecomputeMode::kNone, 0, single_nodes));
    const Trained attention = with(RecomputeMode::kAttention, 0, single_nodes),
                  block = with(RecomputeMode::kBlock, 0, single_nodes);
    expect_same_bits(none, attention);
    expect_same_bits(none, block);
    EXPECT_LE(block.planned, none.planned);  // the gradient in fp32 may be most of so small a step
    EXPECT_GT(block.fit.extra_work, attention.fit.extra_work);
    least = block.planned;
  }
  for (const size_t tenths : {8, 5, 2, 0}) {
    SCOPED_TRACE(std::to_string(tenths) + " tenths of what can be freed");
    const size_t memory = least + (none.planned - least) / 10 * tenths;
    const Trained limited = with(RecomputeMode::kAuto, memory, true);
    EXPECT_LE(limited.planned, memory);
    expect_same_bits(none, limited);
  }
}

// A gated feed-forward part has two hidden results, and their product may be kept or computed again.
TEST(RecomputeBlocks, LlamaGivesTheSameBits) {
  expect_one_result([](const TrainerOptions& options) { return train_llama(options); }, {});
}
TEST(RecomputeBlocks, LlamaStoredInBf16GivesTheSameBits) {
  expect_one_result([](const TrainerOptions& options) { return train_llama(options); }, kStoredInBf16);
}
TEST(RecomputeBlocks, GatedT5StoredInBf16GivesTheSameBits) { expect_one_result(train_t5, kStoredInBf16); }
TEST(RecomputeBlocks, BertStoredInBf16GivesTheSameBits) { expect_one_result(train_bert, kStoredInBf16); }
TEST(RecomputeBlocks, GptStoredInBf16GivesTheSameBits) {
  expect_one_result([](const TrainerOptions& options) { return train(options, 0.1); }, kStoredInBf16);
}

// A step that is given less and less memory keeps each limit, does more and more work, and gives the same bits.
using TrainBatch = std::function<Trained(const TrainerOptions&, int32_t batch)>;
void expect_limits_are_kept(const TrainBatch& train, const PassOptions& passes) {
  // In bf16, the gradient in fp32 would be most of the memory of a batch of kBatch.
  const int32_t batch = passes.storage_type ? 3 * kBatch : kBatch;
  const Trained all = train({.passes = passes}, batch);
  const size_t least = train({.passes = passes, .recompute = RecomputeMode::kBlock}, batch).planned;
  double work = 0;
  for (const size_t tenths : {8, 4, 0}) {
    TrainerOptions options{.passes = passes};
    options.memory = least + (all.planned - least) / 10 * tenths;
    const Trained limited = train(options, batch);
    EXPECT_LE(limited.planned, options.memory);
    EXPECT_GE(limited.fit.extra_work, work);
    work = limited.fit.extra_work;
    expect_same_bits(all, limited);
  }
  EXPECT_GT(work, 0.02);
}

TEST(FitMemory, KeepsEachLimitWithTheSameBits) {
  const auto train_gpt = [](const TrainerOptions& options, int32_t batch) { return train(options, 0.1, batch); };
  expect_limits_are_kept(train_gpt, {});
  expect_limits_are_kept(train_gpt, kStoredInBf16);
}

TEST(FitMemory, KeepsEachLimitOfLlamaStoredInBf16WithTheSameBits) {
  expect_limits_are_kept(train_llama, kStoredInBf16);
}

TEST(FitMemory, NamesTheLeastThatWorks) {
  TrainerOptions options{.memory = 1 << 20};
  const std::string message = error_of([&] { train(options); });
  ASSERT_NE(message, "no error");
  const size_t number = message.rfind(' ');
  ASSERT_NE(number, message.npos) << message;
  options.memory = std::stoull(message.substr(number));
  EXPECT_LE(train(options).planned, options.memory);
  EXPECT_GT(options.memory, 1u << 20);
}
}  // namespace
}  // namespace linnet
