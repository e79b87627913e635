#include "tasks/inspection/question.h"
#include "base/log.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/passes/passes.h"
#include "models/nn/forward.h"

namespace linnet {
namespace {
std::vector<double> log_softmax(std::span<const float> logits) {
  const double largest = std::ranges::max(logits);
  const double sum = sum_of<double>(logits, [&](float logit) { return std::exp(logit - largest); });
  return mapped(logits, [&](float logit) { return logit - largest - std::log(sum); });
}

class Inspector {
 public:
  Inspector(const Question& question, int64_t steps, int threads)
      : question_(question), steps_(steps), rows_(rows_at_once(question)) {
    for (const QuestionSequence& sequence : question.sequences) inputs_.push_back(sequence.input);
    std::vector<Forward::Function> functions{[this](Trace& trace) {
      trace.graph().output("logits", chosen_logits(trace, 1));
      maps_ = add_attention_maps(trace.graph(), inputs_);
    }};
    if (!question.answers.empty()) functions.push_back([this](Trace& trace) { trace_attributions(trace); });
    forward_.emplace(*question.model, functions, threads);
    question.load(forward_->layout(), forward_->parameters());
  }

  Findings run() {
    Findings findings;
    findings.attention = attention();
    Phase phase("attributing answers:");
    const auto total = static_cast<int64_t>(question_.answers.size());
    for (const QuestionAnswer& answer : question_.answers) {
      phase.tick(static_cast<int64_t>(findings.answers.size()), total);
      findings.answers.push_back(examine(answer));
    }
    return findings;
  }

 private:
  // Points of the path that are computed together as rows, within moderate memory.
  static int64_t rows_at_once(const Question& question) {
    constexpr int64_t kTokens = 512, kMostRows = 11;
    const auto longest = max_of<int64_t>(question.sequences, [](const auto& sequence) { return sequence.ids.size(); });
    return std::clamp<int64_t>(kTokens / std::max<int64_t>(longest, 1), 1, kMostRows);
  }

  // Logits [rows, answers] at the positions in input "places": i32 [rows], indices of the flattened states.
  Tensor chosen_logits(Trace& trace, int64_t rows) {
    const std::vector<Tensor> sequences = mapped(question_.sequences, [&](const QuestionSequence& sequence) {
      return trace.input(sequence.input, {DType::kI32, {rows, static_cast<int64_t>(sequence.ids.size())}});
    });
    const Tensor states = question_.states(sequences);
    if (question_.answers.empty()) return states;
    const int64_t width = states.dim(-1);
    positions_ = states.shape().elements() / rows / width;
    const Tensor places = trace.input("places", {DType::kI32, {rows}});
    const Tensor chosen = embedding(reshape(states, {rows * positions_, width}), places);
    return question_.head ? question_.head(chosen) : chosen;
  }

  void trace_attributions(Trace& trace) {
    const Tensor logits = chosen_logits(trace, rows_);
    trace.graph().output("logits", logits);
    const Tensor score = cross_entropy_sum(logits, trace.input("answers", {DType::kI32, {rows_}})) * -1.0;
    trace.graph() = attribute_tokens(score, inputs_);
  }

  void set_tokens(int64_t rows, int64_t position) {
    for (const QuestionSequence& sequence : question_.sequences) {
      std::vector<int32_t> all;
      for (int64_t row = 0; row < rows; ++row) all.insert(all.end(), sequence.ids.begin(), sequence.ids.end());
      forward_->set(sequence.input, all);
    }
    if (question_.answers.empty()) return;
    const std::vector<int32_t> places = mapped<int32_t>(rows, [&](int64_t row) { return row * positions_ + position; });
    forward_->set("places", places);
  }

  std::vector<InspectedAttention> attention() {
    set_tokens(1, 0);
    forward_->run(0);
    std::vector<InspectedAttention> found;
    for (const TracedAttention& map : maps_) {
      const std::span<const float> weights = forward_->output(map.output);
      const size_t of_head = question_.sequences[map.queries].ids.size() * question_.sequences[map.keys].ids.size();
      found.push_back({map.module, map.queries, map.keys, weights.size() / of_head, {weights.begin(), weights.end()}});
    }
    return found;
  }

  FoundAnswer examine(const QuestionAnswer& asked) {
    set_tokens(1, asked.position);
    FoundAnswer answer;
    answer.log_probabilities = log_softmax(forward_->run(0).output("logits"));
    const auto likeliest = std::ranges::max_element(answer.log_probabilities) - answer.log_probabilities.begin();
    answer.id = asked.id.value_or(static_cast<int32_t>(likeliest));
    for (const QuestionSequence& sequence : question_.sequences) answer.shares.emplace_back(sequence.ids.size(), 0.0);
    // Point 0 is the start of the path, the others are the middles of its parts.
    for (int64_t first = 0; first <= steps_; first += rows_) add_points(asked.position, first, answer);
    return answer;
  }

  void add_points(int64_t position, int64_t first, FoundAnswer& answer) {
    set_tokens(rows_, position);
    forward_->set("answers", std::vector<int32_t>(static_cast<size_t>(rows_), answer.id));
    std::vector<float> alpha;
    for (int64_t point = first; point < first + rows_; ++point)
      alpha.push_back(point == 0 ? 0.0F : (static_cast<float>(point) - 0.5F) / static_cast<float>(steps_));
    forward_->set("alpha", alpha);
    forward_->run(1);
    if (first == 0) {
      const std::span<const float> logits = forward_->output("logits");
      answer.baseline = log_softmax(logits.first(answer.log_probabilities.size()))[answer.id];
    }
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const std::span<const float> products = forward_->output("attribution." + inputs_[i]);
      std::vector<double>& shares = answer.shares[i];
      for (int64_t row = 0; row < rows_; ++row)
        if (const int64_t point = first + row; point > 0 && point <= steps_)
          for (size_t t = 0; t < shares.size(); ++t)
            shares[t] += products[static_cast<size_t>(row) * shares.size() + t] / static_cast<double>(steps_);
    }
  }

  const Question& question_;
  const int64_t steps_, rows_;
  std::vector<std::string> inputs_;
  int64_t positions_ = 1;  // of the states of a row
  std::vector<TracedAttention> maps_;
  std::optional<Forward> forward_;
};

using Tensors = std::span<const Tensor>;

Question about(const Module& model, std::vector<int32_t> tokens, std::function<Tensor(Tensors)> states,
    std::function<Tensor(Tensor)> head = {}) {
  return {.model = &model,
      .sequences = {{"tokens", std::move(tokens)}},
      .states = std::move(states),
      .head = std::move(head),
      .answers = {},
      .load = {}};
}
}  // namespace

Findings look_inside(const Question& question, int64_t steps, int threads) {
  return Inspector(question, steps, threads).run();
}

Question ask(CausalModel& model, std::vector<int32_t> tokens) {
  return about(
      model, std::move(tokens), [&model](Tensors in) { return model.hidden({.tokens = in[0]}); },
      [&model](Tensor states) { return model.logits(states); });
}

Question ask(SequenceClassifier& model, std::vector<int32_t> tokens) {
  return about(model, std::move(tokens), [&model](Tensors in) { return model.logits(in[0], {}); });
}

Question ask(MaskedLanguageModel& model, std::vector<int32_t> tokens) {
  return about(
      model, std::move(tokens), [&model](Tensors in) { return model.encoder(in[0], {}); },
      [&model](Tensor states) { return model.logits_of(model.head(states)); });
}

Question ask(SentenceEncoder& model, std::vector<int32_t> tokens) {
  return about(model, std::move(tokens), [&model](Tensors in) { return model.encoder(in[0], {}); });
}

Question ask(EncoderDecoder& model, std::vector<int32_t> source, std::vector<int32_t> target_in) {
  Question question = about(model, {}, [&model](Tensors in) { return model.target_logits(in[0], {}, in[1], {}); });
  question.sequences = {{"source", std::move(source)}, {"target_in", std::move(target_in)}};
  return question;
}
}  // namespace linnet
