// Training a model to predict the next token of a text.
#pragma once
#include <optional>

#include "tasks/language/language_model.h"
#include "tasks/language/language_session.h"

namespace linnet {

class LanguageTask : public TrainingTask {
 public:
  // `from`: a run folder whose tokenizer and model are taken instead of new ones; empty: none.
  LanguageTask(const Config& config, const std::string& from, Capacity capacity = Capacity::kMustSuffice);

  Trainer& trainer() override { return *session_->trainer; }
  const Store& store() const override { return session_->store; }
  const MemoryForecast& forecast() const override { return forecast_; }
  BatchSource& batches() override { return *chunks_; }
  Evaluation evaluate(SharedWork& ranks) override;
  void initialize() override;
  const PretrainedModel* starts_from() const override;
  void save_assets(const std::string& folder) const override { language_.save_assets(folder); }

  const LanguageModel& language() const { return language_; }
  LanguageSession& session() { return *session_; }
  int64_t train_tokens() const { return train_->tokens.size(); }

 private:
  Config config_;
  LanguageModel language_;
  std::optional<LanguageText> train_, valid_;
  std::optional<LanguageSession> session_;
  std::optional<TrainingChunks> chunks_;
  MemoryForecast forecast_;
  uint64_t evaluations_ = 0;
};

// `linnet eval` of a run or a model folder: of a file, or with `path` empty of the split the run's configuration names.
Evaluation evaluate_language_model(const OpenedLanguageModel& opened, const Config& config, const std::string& path,
                                   const std::string& split);

}  // namespace linnet
