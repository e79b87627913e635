// Training a classifier of texts that starts from a BERT folder or from an ONNX file: "text<TAB>label" files.
#pragma once
#include <memory>
#include <optional>

#include "data/examples/text/labelled_batches.h"
#include "training/run/training_task.h"
#include "tasks/classification/text_classifier.h"
#include "tasks/session.h"

namespace linnet {

// The model with its planned memory, one plan for each padded length.
class ClassificationSession : public Session {
 public:
  ClassificationSession(const Config& config, TextClassifier& model, std::vector<std::string> classes, bool training,
                        bool verify_plans = true);

  // The classes' logits of each sequence, [sequences, classes].
  std::vector<float> logits(const LabelledSequences& data);
  Evaluation evaluate(const LabelledSequences& data, SharedWork& ranks);
  Evaluation evaluate(const LabelledSequences& data);

  const int64_t rows;
  const std::vector<int64_t> lengths;
  const std::vector<std::string> classes;
  TextClassifier& model;
};

class ClassificationTask : public TrainingTask {
 public:
  // `from`: a run folder whose model and tokenizer are taken; empty: config.model.from.
  ClassificationTask(const Config& config, const std::string& from, Capacity capacity = Capacity::kMustSuffice);

  Trainer& trainer() override { return *session_->trainer; }
  const Store& store() const override { return session_->store; }
  const MemoryForecast& forecast() const override { return forecast_; }
  BatchSource& batches() override { return *batches_; }
  void initialize() override;
  const PretrainedModel* starts_from() const override;
  Evaluation evaluate(SharedWork& ranks) override { return session_->evaluate(valid_, ranks); }
  void save_assets(const std::string& folder) const override;

  ClassificationSession& session() { return *session_; }
  int64_t train_count() const { return train_.size(); }

 private:
  Config config_;
  std::unique_ptr<PretrainedTokenizer> tokenizer_;
  PretrainedModel model_;
  LabelledSequences train_, valid_;
  std::optional<ClassificationSession> session_;
  std::optional<LabelledBatches> batches_;
  MemoryForecast forecast_;
};

// `linnet export --out`: a folder that other programs load.
void export_classification_run(const std::string& folder, const std::string& out);
// `linnet eval` of a run or model folder: of a file, or with `path` empty of the split its configuration names.
Evaluation evaluate_classification_run(const std::string& folder, const Config& config, const std::string& path,
                                       const std::string& split);

}  // namespace linnet
