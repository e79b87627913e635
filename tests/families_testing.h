// Small models of each family with their losses and batches, for tests of ranks that share the layers of a model.
#pragma once
#include <memory>
#include <string>
#include <vector>
#include "models/modules/encoder_decoder.h"
#include "models/modules/text_decoder.h"
#include "models/modules/text_encoder.h"
#include "models/modules/transformer.h"
#include "t5_testing.h"
#include "training/trainer/learner.h"

namespace linnet::testing {
inline constexpr int64_t kRows = 2, kLength = 12, kVocabulary = 701;  // which no number of ranks here divides

// A model with its loss, and the arrays of a batch.
struct Family {
  virtual ~Family() = default;
  virtual Module& model() = 0;
  virtual Loss loss(Trace& trace) = 0;
  virtual void fill(SingleShapeLearner& learner, int64_t step) = 0;

  static std::vector<int32_t> ids(int64_t count, int64_t step, int64_t salt, int64_t end = kVocabulary) {
    std::vector<int32_t> all;
    for (int64_t i = 0; i < count; ++i)
      all.push_back(static_cast<int32_t>((i * 7919 + i * i * 31 + step * 131 + salt * 17) % end));
    return all;
  }
  static void set(SingleShapeLearner& learner, const std::string& name, const std::vector<int32_t>& values) {
    learner.set<int32_t>(name, values);
  }
};

template <class Model> struct Causal : Family {
  explicit Causal(const auto& config) : net(config) {}
  Module& model() override { return net; }
  Loss loss(Trace& trace) override { return causal_loss(net, trace, kRows, kLength); }
  void fill(SingleShapeLearner& learner, int64_t step) override {
    set(learner, "tokens", ids(kRows * kLength, step, 1));
    std::vector<int32_t> targets = ids(kRows * kLength, step, 2);
    targets[3] = -1;
    set(learner, "targets", targets);
  }
  Model net;
};

struct MaskedBert : Family {
  static constexpr int64_t kMasked = 5;
  Module& model() override { return net; }
  Loss loss(Trace& trace) override { return masked_language_loss(net, trace, kRows, kLength, kMasked, false, 0.1); }
  void fill(SingleShapeLearner& learner, int64_t step) override {
    set(learner, "tokens", ids(kRows * kLength, step, 1));
    set(learner, "lengths", {kLength, kLength - 3});
    set(learner, "positions", ids(kMasked, step, 3, kRows * kLength));
    set(learner, "targets", ids(kMasked, step, 2));
  }
  MaskedLanguageModel net{{.vocab_size = kVocabulary,
      .max_seq_len = 16,
      .width = 32,
      .heads = 4,
      .layers = 2,
      .hidden = 64,
      .dropout = 0.1,
      .pad_token = 0}};
};

struct Pairs : Family {
  void fill(SingleShapeLearner& learner, int64_t step) override {
    set(learner, "source", ids(kRows * kLength, step, 1));
    set(learner, "source_lengths", {kLength, kLength - 4});
    set(learner, "target_in", ids(kRows * kLength, step, 2));
    set(learner, last_input(), ids(kRows * kLength, step, 3));
    if (has_target_lengths()) set(learner, "target_lengths", {kLength - 2, kLength});
  }
  virtual std::string last_input() const = 0;
  virtual bool has_target_lengths() const = 0;
};

struct Translator : Pairs {
  Module& model() override { return net; }
  Loss loss(Trace& trace) override { return translation_loss(net, trace, {kRows, kLength, kLength}, 0.1); }
  std::string last_input() const override { return "target_out"; }
  bool has_target_lengths() const override { return true; }
  Transformer net{{.source_vocab = kVocabulary,
      .target_vocab = kVocabulary,
      .d_model = 32,
      .num_heads = 4,
      .d_ff = 64,
      .num_encoder_layers = 2,
      .num_decoder_layers = 2,
      .max_seq_len = 16,
      .dropout = 0.1}};
};

struct SmallT5 : Pairs {
  Module& model() override { return net; }
  Loss loss(Trace& trace) override { return t5_loss(net, trace, kRows, kLength, kLength); }
  std::string last_input() const override { return "targets"; }
  bool has_target_lengths() const override { return false; }
  T5 net{{.vocab_size = kVocabulary,
      .width = 32,
      .heads = 4,
      .head_size = 8,
      .hidden = 64,
      .encoder_layers = 2,
      .decoder_layers = 2,
      .gated = true,
      .dropout = 0.1}};
};

// "gpt", "llama", "bert", "transformer" or "t5".
inline std::unique_ptr<Family> make_family(const std::string& name) {
  if (name == "bert") return std::make_unique<MaskedBert>();
  if (name == "transformer") return std::make_unique<Translator>();
  if (name == "t5") return std::make_unique<SmallT5>();
  if (name == "llama")
    return std::make_unique<Causal<TextDecoder>>(llama_kind({.vocab_size = kVocabulary,
        .max_seq_len = 16,
        .width = 32,
        .heads = 8,
        .layers = 2,
        .hidden = 48,
        .kv_heads = 4,
        .attention_dropout = 0.1}));
  return std::make_unique<Causal<TextDecoder>>(DecoderConfig{
      .vocab_size = kVocabulary, .max_seq_len = 16, .width = 32, .heads = 4, .layers = 2, .dropout = 0.1});
}
}  // namespace linnet::testing
