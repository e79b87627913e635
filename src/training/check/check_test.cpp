// A small decoder and a small classifier that pass, and twelve ways to spoil them, each found by the right check.
#include "training/check/check.h"
#include <gtest/gtest.h>
#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include "engine/ops/attention/attention.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/reduce/reduce.h"
#include "models/nn/layers.h"
#include "training/trainer/learner.h"

namespace linnet {
namespace {
constexpr int64_t kRows = 4, kLength = 12, kWidth = 32, kVocab = 40, kClasses = 3;

struct Spoiled {
  bool sees_later = false;      // attention without the causal mask
  bool unscaled_head = false;   // logits from embeddings that nobody scaled down
  bool other_labels = false;    // targets of the row before
  bool detached = false;        // the gradient of a layer is cut off
  double deviation = 0;         // of the weights of the feed-forward; 0: Glorot's rule
  double gradient_factor = 1;   // of the feed-forward's result: its gradient is wrong by it
  bool mean_over_rows = false;  // a normalization over the batch
  bool sees_padding = false;    // attention without lengths
  double hidden_bias = 0;       // of the feed-forward's units
  bool ignores_context = false;
  double vanishing = 1;  // factor of the feed-forward's result
  double learning_rate = 3e-3;
  float dropout = 0;  // which is nothing wrong: the check must allow for it
};

struct Layer : Module {
  Layer(Module* parent, const std::string& name, const Spoiled& spoiled)
      : Module(parent, name), wrong(spoiled), dropout(this, "dropout", spoiled.dropout),
        hidden(this, "hidden", kWidth, 2 * kWidth, weights(spoiled)),
        shrink(this, "shrink", 2 * kWidth, kWidth, weights(spoiled)) {}
  static Initializer weights(const Spoiled& spoiled) {
    return spoiled.deviation > 0 ? normal_init(spoiled.deviation) : xavier_uniform();
  }

  Tensor operator()(Tensor x, Tensor lengths) {
    const Tensor qkv = in(norm1(x));
    const std::vector<Tensor> parts = split(qkv, -1, std::vector<int64_t>{kWidth, kWidth, kWidth});
    AttentionOptions options{.heads = 2, .causal = !lengths.defined() && !wrong.sees_later};
    if (!wrong.sees_padding) options.lengths = lengths;
    Tensor seen = out(attention(parts[0], parts[1], parts[2], options));
    if (wrong.ignores_context) seen = seen * 0.0;
    x = x + seen;
    Tensor f = dropout(shrink(relu(hidden(norm2(x)) + wrong.hidden_bias)));
    if (wrong.detached) f = stop_gradient(f);
    if (wrong.gradient_factor != 1) f = f * wrong.gradient_factor + stop_gradient(f * (1 - wrong.gradient_factor));
    return x + f * wrong.vanishing;
  }

  Spoiled wrong;
  LayerNorm norm1{this, "norm1", kWidth}, norm2{this, "norm2", kWidth};
  Linear in{this, "in", kWidth, 3 * kWidth}, out{this, "out", kWidth, kWidth};
  Dropout dropout;
  Linear hidden, shrink;
};

struct Model : Module {
  explicit Model(const Spoiled& spoiled)
      : wrong(spoiled), tokens(this, "tokens", kVocab, kWidth, normal_init(spoiled.unscaled_head ? 1.0 : 0.15)),
        first(this, "first", spoiled), second(this, "second", [&] {
          Spoiled rest;  // one spoiled layer is enough
          rest.sees_later = spoiled.sees_later, rest.sees_padding = spoiled.sees_padding;
          rest.ignores_context = spoiled.ignores_context;
          return rest;
        }()) {}

  Tensor states(Tensor ids, Tensor lengths) {
    Tensor x = tokens(ids) + positions.weight.tensor();
    if (wrong.mean_over_rows) x = x - sum_to(x, {kLength, kWidth}) * (1.0 / kRows);
    return norm(second(first(x, lengths), lengths));
  }

  Loss decoder_loss(Trace& trace) {
    const TensorType type{DType::kI32, {kRows, kLength}};
    const Tensor ids = trace.input("tokens", type);
    Tensor targets = trace.input("targets", type);
    const Tensor x = reshape(states(ids, {}), {kRows * kLength, kWidth});
    Tensor logits = matmul(x, tokens.weight.tensor(), false, true);
    if (wrong.other_labels) {
      // The logits of row r meet the targets of row r - 1.
      const int64_t row = kLength;
      const std::vector<Tensor> parts = split(logits, 0, std::vector<int64_t>{row, (kRows - 1) * row});
      const Tensor rest[] = {parts[0]};
      logits = concat(parts[1], rest, 0);
    }
    return {cross_entropy_sum(logits, reshape(targets, {kRows * kLength}), 0), count_targets(targets, DType::kF32)};
  }

  Loss classifier_loss(Trace& trace) {
    const Tensor ids = trace.input("tokens", {DType::kI32, {kRows, kLength}});
    const Tensor lengths = trace.input("lengths", {DType::kI32, {kRows}});
    const Tensor labels = trace.input("labels", {DType::kI32, {kRows}});
    const Tensor x = states(ids, lengths);
    const Tensor start = reshape(split(x, 1, std::vector<int64_t>{1, kLength - 1})[0], {kRows, kWidth});
    return {cross_entropy_sum(classes(start), labels, 0), count_targets(labels, DType::kF32)};
  }

  Spoiled wrong;
  Embedding tokens, positions{this, "positions", kLength, kWidth, normal_init(0.15)};
  Layer first, second;
  LayerNorm norm{this, "norm", kWidth};
  Linear classes{this, "classes", kWidth, kClasses};
};

std::vector<std::byte> ids_of(int64_t count, int32_t below, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> values(static_cast<size_t>(count));
  for (int32_t& value : values) value = static_cast<int32_t>(random() % static_cast<unsigned>(below));
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

std::vector<CheckLine> check(
    const Spoiled& spoiled, bool classifier, const std::function<void()>& before_step = [] {}) {
  Model model(spoiled);
  std::vector<ParameterGroup> groups;
  if (!classifier) groups.push_back({.patterns = {"classes.*"}, .frozen = true});
  SingleShapeLearner learner(
      model, [&](Trace& trace) { return classifier ? model.classifier_loss(trace) : model.decoder_loss(trace); },
      {.optimizer = {.kind = OptimizerAttrs::Kind::kAdam}, .threads = 1}, {}, groups);
  CheckSubject subject{.trainer = learner.trainer(), .batch = {}};
  subject.reset = [&] { learner.trainer().state().initialize(); };
  subject.learning_rate = spoiled.learning_rate;
  subject.batch["tokens"] = ids_of(kRows * kLength, kVocab, 1);
  if (classifier) {
    const std::vector<int32_t> lengths{12, 7, 9, 4}, labels{0, 1, 2, 0};
    for (const auto& [name, values] : {std::pair{"lengths", lengths}, {"labels", labels}}) {
      const auto bytes = std::as_bytes(std::span(values));
      subject.batch[name] = {bytes.begin(), bytes.end()};
    }
    subject.sequences = {{.tokens = "tokens", .lengths = "lengths"}};
    subject.labels = {"labels"};
  } else {
    subject.batch["targets"] = ids_of(kRows * kLength, kVocab, 2);
    subject.sequences = {{.tokens = "tokens", .targets = "targets"}};
    subject.labels = {"targets"};
  }
  subject.before_step = before_step;
  return run_checks(subject);
}

std::string failures(const std::vector<CheckLine>& lines) {
  std::string names;
  for (const CheckLine& line : lines)
    if (line.verdict == Verdict::kFail) names += line.name + ": " + line.figure + "\n";
  return names;
}

TEST(Check, ASaneDecoderAndASaneClassifierPass) {
  for (const bool classifier : {false, true}) {
    const std::vector<CheckLine> lines = check({}, classifier);
    EXPECT_EQ(failures(lines), "");
    EXPECT_GE(std::ranges::count(lines, Verdict::kPass, &CheckLine::verdict), 9);
  }
}

// Its gradients are those of the loss with dropout, which is another than the one that evaluation gives.
TEST(Check, ASaneModelWithDropoutPasses) { EXPECT_EQ(failures(check({.dropout = 0.2F}, true)), ""); }

struct Sabotage {
  const char* what;
  const char* found_by;
  Spoiled spoiled;
  bool classifier = false;
};

class Sabotaged : public testing::TestWithParam<Sabotage> {};

TEST_P(Sabotaged, IsFoundByTheRightCheck) {
  const Sabotage& sabotage = GetParam();
  const std::vector<CheckLine> lines = check(sabotage.spoiled, sabotage.classifier);
  const bool found = std::ranges::any_of(
      lines, [&](const CheckLine& line) { return line.verdict == Verdict::kFail && line.name == sabotage.found_by; });
  EXPECT_TRUE(found) << sabotage.what << "; failed:\n" << failures(lines);
}

INSTANTIATE_TEST_SUITE_P(Models, Sabotaged,
    testing::Values(Sabotage{"wrong_mask", "no look at later tokens", {.sees_later = true}},
        Sabotage{"missing_scale", "initial loss", {.unscaled_head = true}},
        Sabotage{"shuffled_labels", "rows do not see each other", {.other_labels = true}},
        Sabotage{"detached_layer", "gradients by layer", {.detached = true}},
        Sabotage{"exploding_weights", "gradients by layer", {.deviation = 1e4}},
        Sabotage{"wrong_gradient", "gradients against differences", {.gradient_factor = 1.5}},
        Sabotage{"mean_over_rows", "rows do not see each other", {.mean_over_rows = true}},
        Sabotage{"sees_padding", "padding", {.sees_padding = true}, true},
        Sabotage{"dead_units", "dead units", {.hidden_bias = -50}},
        Sabotage{"ignores_context", "earlier tokens count", {.ignores_context = true}},
        Sabotage{"vanishing_layer", "gradients by layer", {.vanishing = 1e-9}},
        Sabotage{"rate_too_high", "overfitting one batch", {.learning_rate = 30}}),
    [](const auto& info) { return std::string(info.param.what); });

// Python raises KeyboardInterrupt there.
TEST(Check, AnExceptionBeforeAnyStepEndsIt) {
  struct Interrupt {};
  int steps = 0, last = 0;
  (void)check({}, false, [&] { ++steps; });
  EXPECT_GT(steps, 60);
  for (const int at : {1, steps / 2, steps}) {
    last = 0;
    EXPECT_THROW((void)check({}, false,
                     [&] {
                       if (++last == at) throw Interrupt{};
                     }),
        Interrupt);
    EXPECT_EQ(last, at);
  }
}
}  // namespace
}  // namespace linnet
