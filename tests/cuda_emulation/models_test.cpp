// Every model's training step on a device, in fp32 and with activations in bf16, beside the CPU's.
#include <gtest/gtest.h>
#include <functional>
#include <memory>
#include "models/modules/image_model.h"
#include "models/modules/text_decoder.h"
#include "models/modules/text_encoder.h"
#include "op_harness.h"
#include "t5_testing.h"
#include "training/trainer/learner.h"

namespace linnet {
namespace {
constexpr int64_t kRows = 3, kLength = 12, kVocab = 40;

struct ModelCase {
  std::shared_ptr<Module> model;
  LossFunction loss;
  std::function<void(SingleShapeLearner&)> fill;
};

// Ids in [low, high) by rule.
std::vector<int32_t> ids(int64_t count, int32_t low, int32_t high, int32_t salt) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i)
    ids.push_back(low + static_cast<int32_t>((i * 7919 + salt * 104729) % 9973 % (high - low)));
  return ids;
}

void fill_tokens(SingleShapeLearner& learner) {
  learner.set<int32_t>("tokens", ids(kRows * kLength, 0, kVocab, 1));
  learner.set<int32_t>("targets", ids(kRows * kLength, 0, kVocab, 2));
}

ModelCase gpt() {
  auto model = std::make_shared<TextDecoder>(
      DecoderConfig{.vocab_size = kVocab, .max_seq_len = 16, .width = 32, .heads = 2, .layers = 2, .dropout = 0.1});
  return {model, [model](Trace& trace) { return causal_loss(*model, trace, kRows, kLength); }, fill_tokens};
}

// Packed rows, grouped queries, a window, rotary positions.
ModelCase llama() {
  DecoderConfig config =
      llama_kind({.vocab_size = kVocab, .max_seq_len = 16, .width = 32, .heads = 4, .layers = 2, .hidden = 48});
  config.kv_heads = 2, config.window = 7;
  auto model = std::make_shared<TextDecoder>(config);
  return {model, [model](Trace& trace) { return causal_loss(*model, trace, kRows, kLength, true); },
      [](SingleShapeLearner& learner) {
        fill_tokens(learner);
        std::vector<int32_t> positions, starts;
        for (int64_t i = 0; i < kRows * kLength; ++i) {
          const auto at = static_cast<int32_t>(i % kLength);
          positions.push_back(at < 5 ? at : at - 5), starts.push_back(at < 5 ? 0 : 5);
        }
        learner.set<int32_t>("positions", positions);
        learner.set<int32_t>("starts", starts);
      }};
}

EncoderConfig bert_config() {
  return {.vocab_size = kVocab, .max_seq_len = 16, .width = 32, .heads = 2, .layers = 2, .hidden = 64};
}

ModelCase masked_bert() {
  auto model = std::make_shared<MaskedLanguageModel>(bert_config());
  return {model, [model](Trace& trace) { return masked_language_loss(*model, trace, kRows, kLength, 6); },
      [](SingleShapeLearner& learner) {
        learner.set<int32_t>("tokens", ids(kRows * kLength, 0, kVocab, 1));
        learner.set<int32_t>("lengths", {12, 5, 9});
        learner.set<int32_t>("positions", {1, 4, 13, 15, 26, 0});
        learner.set<int32_t>("targets", {7, 9, 1, 0, 39, -1});
      }};
}

ModelCase classifying_bert() {
  auto model = std::make_shared<SequenceClassifier>(bert_config(), 3);
  return {model, [model](Trace& trace) { return classification_loss(*model, trace, kRows, kLength); },
      [](SingleShapeLearner& learner) {
        learner.set<int32_t>("tokens", ids(kRows * kLength, 0, kVocab, 1));
        learner.set<int32_t>("lengths", {12, 5, 9});
        learner.set<int32_t>("labels", {2, 0, 1});
      }};
}

ModelCase t5(bool gated) {
  auto model = std::make_shared<T5>(T5Config{.vocab_size = kVocab,
      .width = 32,
      .heads = 4,
      .head_size = 8,
      .hidden = 64,
      .encoder_layers = 2,
      .decoder_layers = 2,
      .buckets = 8,
      .max_distance = 10,
      .activation = gated ? Activation::kGeluTanh : Activation::kRelu,
      .gated = gated,
      .dropout = 0});  // cuDNN draws masks of attention in its own way
  return {model, [model](Trace& trace) { return t5_loss(*model, trace, kRows, kLength, kLength); },
      [](SingleShapeLearner& learner) {
        learner.set<int32_t>("source", ids(kRows * kLength, 1, kVocab, 1));
        learner.set<int32_t>("source_lengths", {12, 5, 9});
        learner.set<int32_t>("target_in", ids(kRows * kLength, 1, kVocab, 2));
        learner.set<int32_t>("targets", ids(kRows * kLength, 1, kVocab, 3));
      }};
}

ModelCase cnn() {
  auto model = std::make_shared<Cnn>(CnnConfig{.height = 12, .width = 12, .filters = 16});
  return {model, [model](Trace& trace) { return image_loss(*model, trace, 5); },
      [](SingleShapeLearner& learner) {
        std::vector<uint8_t> pixels;
        for (const int32_t value : ids(5 * 12 * 12, 0, 256, 1)) pixels.push_back(static_cast<uint8_t>(value));
        learner.set<uint8_t>("images", pixels);
        learner.set<int32_t>("labels", {0, 9, 3, 3, 7});
      }};
}

struct Losses {
  std::vector<double> losses, norms;
};

Losses train(const ModelCase& model, const Backend* backend, bool reduced) {
  TrainerOptions options;
  if (backend) options.backend = backend;
  if (reduced) options.passes.storage_type = DType::kBF16;
  options.passes.precision = reduced ? Precision::kBf16 : Precision::kF32;
  options.optimizer.clip_norm = 1;
  SingleShapeLearner learner(*model.model, model.loss, options);
  Losses result;
  for (int step = 0; step < 3; ++step) {
    model.fill(learner);
    const StepReport report = learner.step(1e-3);
    result.losses.push_back(report.loss), result.norms.push_back(report.grad_norm);
  }
  model.fill(learner);
  result.losses.push_back(learner.evaluate());
  return result;
}

void expect_near(const Losses& got, const Losses& expected, double tolerance) {
  for (size_t i = 0; i < got.losses.size(); ++i)
    EXPECT_NEAR(got.losses[i], expected.losses[i], tolerance * expected.losses[i]) << "loss " << i + 1;
  for (size_t i = 0; i < got.norms.size(); ++i)
    EXPECT_NEAR(got.norms[i], expected.norms[i], 5 * tolerance * expected.norms[i]) << "norm " << i + 1;
}

class ModelOnADevice : public ::testing::TestWithParam<std::pair<const char*, ModelCase (*)()>> {};

TEST_P(ModelOnADevice, TrainsAsOnTheCpu) {
  const ModelCase model = GetParam().second();
  const Losses expected = train(model, nullptr, false);
  {
    SCOPED_TRACE("fp32");
    expect_near(train(model, testing::tested_backend(), false), expected, 5e-5);
  }
  SCOPED_TRACE("bf16");
  expect_near(train(model, testing::tested_backend(), true), expected, 2e-2);
}

INSTANTIATE_TEST_SUITE_P(Models, ModelOnADevice,
    ::testing::Values(std::pair{"gpt", &gpt}, std::pair{"llama", &llama}, std::pair{"masked_bert", &masked_bert},
        std::pair{"classifying_bert", &classifying_bert}, std::pair{"t5", +[] { return t5(false); }},
        std::pair{"t5_gated", +[] { return t5(true); }}, std::pair{"cnn", &cnn}),
    [](const auto& info) { return std::string(info.param.first); });
}  // namespace
}  // namespace linnet
