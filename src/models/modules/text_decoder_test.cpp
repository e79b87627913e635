#include "models/modules/text_decoder.h"
#include <gtest/gtest.h>
#include <cmath>
#include "engine/exec/interpreter.h"
#include "training/trainer/learner.h"

namespace linnet {
namespace {
constexpr int64_t kBatch = 2, kLength = 12;

DecoderConfig small_gpt() {
  return {.vocab_size = 30, .max_seq_len = 16, .width = 32, .heads = 4, .layers = 2, .dropout = 0};
}

std::vector<int32_t> row_of_tokens(int32_t salt) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < kBatch * kLength; ++i) tokens.push_back((i * 7 + i * i * salt) % 30);
  return tokens;
}

TEST(Gpt, HasGpt2sParameters) {
  TextDecoder model(DecoderConfig{});
  EXPECT_EQ(model.parameter_count(), 124'439'808);
}

TEST(Gpt, StartsNearTheLogarithmOfTheVocabulary) {
  TextDecoder model(small_gpt());
  SingleShapeLearner learner(model, [&](Trace& trace) { return causal_loss(model, trace, kBatch, kLength); });
  learner.set<int32_t>("tokens", row_of_tokens(1));
  learner.set<int32_t>("targets", row_of_tokens(2));
  EXPECT_NEAR(learner.evaluate(), std::log(30.0), 0.1 * std::log(30.0));
}

TEST(Gpt, LearnsABatchByHeart) {
  TextDecoder model(small_gpt());
  TrainerOptions options;
  options.optimizer.kind = OptimizerAttrs::Kind::kAdam;
  SingleShapeLearner learner(
      model, [&](Trace& trace) { return causal_loss(model, trace, kBatch, kLength); }, options);
  learner.set<int32_t>("tokens", row_of_tokens(1));
  learner.set<int32_t>("targets", row_of_tokens(2));
  for (int i = 0; i < 300; ++i) learner.step(3e-3);
  EXPECT_LT(learner.evaluate(), 0.05);
}

// The loss of the first tokens does not change with what comes after them.
TEST(Gpt, NoTokenSeesALaterOne) {
  TextDecoder model(small_gpt());
  SingleShapeLearner learner(model, [&](Trace& trace) { return causal_loss(model, trace, kBatch, kLength); });
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

using Ids = std::vector<int32_t>;

DecoderConfig small_llama() {
  DecoderConfig config =
      llama_kind({.vocab_size = 30, .max_seq_len = 16, .width = 16, .heads = 4, .layers = 2, .hidden = 24});
  config.kv_heads = 2, config.deviation = 0.3;
  return config;
}

// Hidden states [T, D] of one row; positions and starts may be empty.
std::vector<double> states(TextDecoder& model, const Ids& tokens, const Ids& positions, const Ids& starts) {
  Trace trace({.dtype = DType::kF64});
  const TensorType type{DType::kI32, {1, static_cast<int64_t>(tokens.size())}};
  NamedTensors inputs;
  const auto put = [&](const char* name, const Ids& values) {
    if (values.empty()) return Tensor{};
    inputs[name] = HostTensor(type, std::span<const int32_t>(values));
    return trace.input(name, type);
  };
  const TokenRows rows{put("tokens", tokens), put("positions", positions), put("starts", starts)};
  trace.graph().output("hidden", model.hidden(rows));
  for (const ParameterSpec& spec : model.parameters()) {
    std::vector<float> values(static_cast<size_t>(spec.shape.elements()));
    initialize(spec.initializer, spec.name, 1, spec.shape, values);
    const std::vector<double> wide(values.begin(), values.end());
    inputs[spec.name] = HostTensor({DType::kF64, spec.shape}, std::span<const double>(wide));
  }
  return interpret(trace.finish(), inputs).outputs.at("hidden").values();
}

// Documents packed into a row give what they give alone.
TEST(Llama, PackedDocumentsDoNotSeeEachOther) {
  TextDecoder model(small_llama());
  const Ids first{3, 1, 4, 1, 5}, second{9, 2, 6};
  std::vector<double> want = states(model, first, {}, {});
  const std::vector<double> rest = states(model, second, {}, {});
  want.insert(want.end(), rest.begin(), rest.end());
  const auto got = states(model, {3, 1, 4, 1, 5, 9, 2, 6}, {0, 1, 2, 3, 4, 0, 1, 2}, {0, 0, 0, 0, 0, 5, 5, 5});
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-12);
}

TEST(Llama, HasTheParametersOfItsSizes) {
  DecoderConfig config = llama_kind({.vocab_size = 32000, .width = 2048, .heads = 32, .layers = 22, .hidden = 5632});
  config.kv_heads = 4;
  EXPECT_EQ(TextDecoder(config).parameter_count(), 1100048384);  // TinyLlama
}
}  // namespace
}  // namespace linnet
