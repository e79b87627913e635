#include "tasks/scorer.h"
#include <algorithm>
#include "base/fail.h"
#include "data/examples/text/token_chunks.h"
#include "tasks/language/language_model.h"
#include "tasks/predictor.h"
#include "tasks/task_table.h"
#include "tasks/texts/text_classifier.h"
#include "tasks/translation/translation_session.h"
#include "training/run/run_folder.h"

namespace linnet {
namespace {
// Padded lengths of texts, which are scored one at a time: 16, 32, ... and `longest`.
std::vector<int64_t> scorer_lengths(int64_t longest) {
  std::vector<int64_t> lengths;
  for (int64_t length = 16; length < longest; length *= 2) lengths.push_back(length);
  lengths.push_back(longest);
  return lengths;
}

size_t shape_for(const std::vector<int64_t>& lengths, size_t tokens) {
  return static_cast<size_t>(std::ranges::lower_bound(lengths, static_cast<int64_t>(tokens)) - lengths.begin());
}

class ScoringSession : public Session {
 public:
  ScoringSession(const Config& config, CausalModel& model, const std::vector<int64_t>& lengths)
      : Session(config, model, false) {
    std::vector<LossFunction> losses;
    for (const int64_t length : lengths)
      losses.push_back([&model, length](Trace& trace) { return causal_loss(model, trace, 1, length); });
    plan(token_inputs({.rows = 1, .length = lengths.back()}, false), losses);
  }
};

class LanguageScorer : public Scorer {
 public:
  LanguageScorer(const std::string& folder, const InferenceOptions& options) : opened_(open_language_model(folder)) {
    apply(options, opened_.config, folder);
    const int64_t context = opened_.config.data.context;
    const CausalModel& model = *opened_.model;
    lengths_ = scorer_lengths(context > 0 ? std::min(context, model.max_length()) : model.usual_length());
    session_ = std::make_unique<ScoringSession>(opened_.config, *opened_.model, lengths_);
    take_model_weights(*session_, folder, "", opened_.weights());
  }
  bool takes_pairs() const override { return false; }

  TextScore score(const std::string& text, const std::string&) override {
    std::vector<int32_t> ids;
    if (const int32_t start = opened_.coder->start(); start >= 0) ids.push_back(start);
    opened_.coder->encode(text, ids);
    TextScore total;
    const auto longest = static_cast<size_t>(lengths_.back());
    for (size_t begin = 0; begin + 1 < ids.size(); begin += longest) {
      const size_t size = std::min(longest, ids.size() - 1 - begin), shape = shape_for(lengths_, size);
      const auto length = static_cast<size_t>(lengths_[shape]);
      std::vector<int32_t> tokens(length, 0), targets(length, -1);
      std::copy_n(ids.begin() + begin, size, tokens.begin());
      std::copy_n(ids.begin() + begin + 1, size, targets.begin());
      Batch batch;
      batch.shape_index = static_cast<int>(shape);
      batch.arrays = {batch_array("tokens", tokens.data(), lengths_[shape]),
          batch_array("targets", targets.data(), lengths_[shape])};
      const LossTotal loss = session_->trainer->evaluate(batch);
      total.log_probability -= loss.sum;
      total.tokens += loss.tokens;
    }
    return total;
  }

 private:
  OpenedLanguageModel opened_;
  std::vector<int64_t> lengths_;
  std::unique_ptr<ScoringSession> session_;
};

class TranslationScorer : public Scorer {
 public:
  TranslationScorer(const std::string& folder, const InferenceOptions& options)
      : opened_(open_translation_model(folder, {}, options.languages)) {
    Config config = opened_.config;
    apply(options, config, folder);
    config.train.label_smoothing = 0;
    lengths_ = scorer_lengths(config.model.max_seq_len);
    SessionOptions needs;
    needs.training = false;
    for (const int64_t source : lengths_)
      for (const int64_t target : lengths_) needs.shapes.push_back({1, source, target});
    session_ = std::make_unique<TranslationSession>(config, opened_, std::move(needs));
    take_model_weights(*session_, folder, "", opened_.weights());
  }
  bool takes_pairs() const override { return true; }

  TextScore score(const std::string& text, const std::string& source_text) override {
    const TokenizerPair& tokenizers = session_->tokenizers;
    const SentenceFrame frame = tokenizers.frame();
    std::vector<int32_t> source, begun;
    tokenizers.source->encode(source_text, source);
    tokenizers.target->encode(text, begun);
    const bool cut = frame_sentence(source, frame.source_begin, frame.source_end, lengths_.back());
    cut_texts_ += frame_sentence(begun, frame.target_begin, frame.target_end, lengths_.back() + 1) || cut;
    std::vector<int32_t> target(begun.begin() + 1, begun.end());
    begun.pop_back();
    const size_t rows = shape_for(lengths_, source.size()), columns = shape_for(lengths_, target.size());
    const auto source_length = static_cast<int32_t>(source.size()), target_length = static_cast<int32_t>(target.size());
    source.resize(lengths_[rows], tokenizers.special.pad);
    for (std::vector<int32_t>* side : {&begun, &target}) side->resize(lengths_[columns], tokenizers.special.pad);
    Batch batch;
    batch.shape_index = static_cast<int>(rows * lengths_.size() + columns);
    batch.arrays = {batch_array("source", source.data(), lengths_[rows]),
        batch_array("source_lengths", &source_length, 1), batch_array("target_in", begun.data(), lengths_[columns]),
        batch_array("target_out", target.data(), lengths_[columns]), batch_array("target_lengths", &target_length, 1)};
    const LossTotal loss = session_->trainer->evaluate(batch);
    return {-loss.sum, loss.tokens};
  }

 private:
  OpenedTranslationModel opened_;
  std::vector<int64_t> lengths_;
  std::unique_ptr<TranslationSession> session_;
};

// Like sentence-transformers' CrossEncoder: the model's one output, without a sigmoid.
class PairScorer : public Scorer {
 public:
  PairScorer(const std::string& folder, const InferenceOptions& options)
      : predictor_(open_predictor(folder, options, 1, true)) {
    if (predictor_->outputs() != 1)
      fail_user("'", folder, "' tells classes; `linnet predict` gives their probabilities");
  }
  bool takes_pairs() const override { return true; }
  TextScore score(const std::string& text, const std::string& source) override {
    return {.score = predictor_->answer({source + '\t' + text}, 1)[0].json.at("number").get<double>()};
  }

 private:
  const std::unique_ptr<Predictor> predictor_;
};
}  // namespace

std::unique_ptr<Scorer> open_language_scorer(const std::string& folder, const InferenceOptions& options) {
  return std::make_unique<LanguageScorer>(folder, options);
}

std::unique_ptr<Scorer> open_translation_scorer(const std::string& folder, const InferenceOptions& options) {
  return std::make_unique<TranslationScorer>(folder, options);
}

std::unique_ptr<Scorer> open_scorer(const std::string& folder, const InferenceOptions& options) {
  if (is_translation_folder(folder)) return open_translation_scorer(folder, options);
  if (is_text_classifier_folder(folder)) return std::make_unique<PairScorer>(folder, options);
  const RunFolder run(folder);
  if (!run.has_config() && is_pretrained_folder(folder)) return open_language_scorer(folder, options);
  const TaskActions& task = task_actions(run.load_config());
  if (!task.score) fail_user("run '", folder, "' ", task.no_score);
  return task.score(folder, options);
}
}  // namespace linnet
