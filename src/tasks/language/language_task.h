// Training a model to predict the next token of a text.
#pragma once
#include <algorithm>
#include <optional>

#include "tasks/language/language_model.h"
#include "tasks/language/language_session.h"
#include "tasks/session_task.h"

namespace linnet {

class LanguageTask : public SessionTask {
 public:
  explicit LanguageTask(const Config& config) : SessionTask(config) {}

  void open(const std::string& from) override;
  std::string assume(const DataAtHand& data) override;
  DataAtHand data_at_hand(bool exact) const override { return text_at_hand(config_, exact); }
  std::unique_ptr<Session> make_session(const Config& config, bool verify) override;
  BatchSource& batches() override { return *chunks_; }
  Evaluation evaluate(SharedWork& ranks) override;
  void save_assets(const std::string& folder) const override { language_.save_assets(folder); }

  int64_t most() const override { return std::max<int64_t>(1, tokens_ / context_); }
  uint64_t assumed_bytes() const override { return 2 * static_cast<uint64_t>(tokens_); }
  std::string batches_text(const Session& session) const override;
  const char* shorter_key() const override { return "context"; }

 protected:
  void begin() override;
  const PretrainedModel* pretrained() const override { return language_.pretrained ? &*language_.pretrained : nullptr; }

 private:
  LanguageSession& session() { return static_cast<LanguageSession&>(*session_); }

  LanguageModel language_;
  std::optional<LanguageText> train_, valid_;
  int64_t tokens_ = 0, context_ = 1;  // to train on; of a chunk
  bool packed_ = false;
  std::optional<TrainingChunks> chunks_;
  uint64_t evaluations_ = 0;
};

// `linnet eval` of a run or a model folder: of a file, or with `path` empty of the split the run's configuration names.
Evaluation evaluate_language_model(const OpenedLanguageModel& opened, const Config& config, const std::string& path,
                                   const std::string& split);

}  // namespace linnet
