// Trains text or token classifiers from an encoder folder, an ONNX file, or from scratch.
#pragma once
#include <optional>
#include "tasks/session_task.h"
#include "tasks/texts/cached_batches.h"
#include "tasks/texts/text_session.h"

namespace linnet {
class TextTraining : public SessionTask {
 public:
  explicit TextTraining(const Config& config) : SessionTask(config), task_(text_task(config)) {}

  void open(const std::string& from) override;
  std::string assume(const DataAtHand& data) override;
  DataAtHand data_at_hand(bool exact) const override;
  std::unique_ptr<Session> make_session(const Config& config, bool verify) override;
  BatchSource& batches() override { return cached_ ? static_cast<BatchSource&>(*cached_) : *batches_; }
  Evaluation evaluate(const SharedWork& ranks) override { return session().evaluate(valid_records_, valid_, ranks); }
  void save_assets(const std::string& folder) const override;

  int64_t most() const override { return count_; }
  std::string batches_text(const Session& session) const override;
  const char* shorter_key() const override { return "context"; }

 protected:
  void begin() override;
  const char* advice() const override { return "; a smaller batch_size needs less"; }
  const PretrainedModel* pretrained() const override { return &model_; }

 private:
  TextSession& session() { return static_cast<TextSession&>(*session_); }
  // Opens model.from with a new head for outputs_, makes a new model, or opens a run's with its outputs.
  void open_model(const std::string& from, const TextRecords& train);
  // Makes a model of the configuration's sizes, and trains a tokenizer if none is given.
  void make_model(const TextRecords& train);
  void weigh_classes();
  ConfigFile describe_model(int64_t vocab_size, int64_t pad_token) const;

  const TextTask& task_;
  std::unique_ptr<PretrainedTokenizer> tokenizer_;
  PretrainedModel model_;
  Names outputs_;
  bool pairs_ = false;
  TextExamples train_, valid_;
  TextRecords valid_records_;
  int64_t count_ = 0;  // of training examples
  std::optional<TextBatches> batches_;
  std::optional<CachedBatches> cached_;  // of batches_, with cached gradients
};

// `linnet export --out`: a model folder for other programs.
void export_classification_run(const std::string& folder, const std::string& out);
// `linnet eval` of a run or model folder, on the file `path`, or if empty on the split that the configuration names.
Evaluation evaluate_texts_of(
    const std::string& folder, const Config& config, const std::string& path, const std::string& split);
}  // namespace linnet
