// Training a model to predict the next token of a text.
#pragma once
#include <optional>

#include "app/language_session.h"

namespace linnet {

class LanguageTask : public TrainingTask {
 public:
  // With `coder` its vocabulary is taken instead of one made of the text.
  LanguageTask(const Config& config, std::unique_ptr<TextCoder> coder);

  Trainer& trainer() override { return *session_->trainer; }
  const Store& store() const override { return session_->store; }
  const MemoryForecast& forecast() const override { return forecast_; }
  int64_t shape_count() const override { return 1; }
  LoadedBatch next_batch() override;
  void seek(int64_t epoch, int64_t batch) override { windows_->seek(epoch, batch); }
  Evaluation evaluate() override;
  void save_assets(const std::string& folder) const override { coder_->save(folder); }

  const TextCoder& coder() const { return *coder_; }
  LanguageSession& session() { return *session_; }
  int64_t train_tokens() const { return train_->tokens.size(); }

 private:
  Config config_;
  std::unique_ptr<TextCoder> coder_;
  std::optional<LanguageText> train_, valid_;
  std::optional<LanguageSession> session_;
  std::optional<TrainingWindows> windows_;
  MemoryForecast forecast_;
  int64_t batches_ = 0;
};

// `linnet eval` of a run: of a file, or with `path` empty of the split its configuration names.
Evaluation evaluate_language_run(const std::string& folder, const Config& config, const std::string& path,
                                 const std::string& split);

}  // namespace linnet
