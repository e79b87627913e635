// A classifier of texts or tokens in planned memory, with one plan for each padded length.
#pragma once
#include "tasks/session_task.h"
#include "tasks/teacher.h"
#include "tasks/texts/text_task.h"
#include "training/run/training_run.h"

namespace linnet {
class TextSession : public Session {
 public:
  TextSession(const Config& config, const TextTask& task, TextClassifier& model, Names outputs, bool pairs,
      bool training, bool verify_plans = true, const std::shared_ptr<const Teacher>& teacher = {});

  // The logits of each example: [parts, outputs], or [tokens, outputs].
  std::vector<std::vector<float>> logits(const TextExamples& examples);
  // The embeddings of a training batch, with cached gradients.
  std::span<const float> embed_training(const Batch& batch);
  TaskEvaluation evaluate(const TextRecords& records, const TextExamples& examples, const SharedWork& ranks);

  const int64_t rows;            // of a training batch
  const int64_t evaluated_rows;  // those of all shards where an example's loss depends on the others of its batch
  const std::vector<int64_t> lengths;
  const TextTask& task;
  const Names outputs;

 private:
  // One example's logits from a batch: [outputs] or [tokens, outputs], part by part.
  std::vector<float> logits_of(const TextExamples& examples, const Batch& batch, int64_t row, int64_t example);
  // Logits of the evaluated batch, [parts * evaluated_rows, outputs] or [evaluated_rows, length, outputs].
  const float* logits_of(const Batch& batch) {
    return trainer->plans().evaluate_executor(batch.shape_index).output("logits").as<const float>();
  }

  TextClassifier& model_;
  const Config config_;
  int first_alone_ = -1;  // the shape that embeds texts of lengths[0], with cached gradients
};

// `linnet export --out`: a model folder for other programs.
void export_classification_run(const std::string& folder, const std::string& out);
// `linnet eval` of a run or model folder, on the file `path`, or if empty on the split that the configuration names.
TaskEvaluation evaluate_texts_of(
    const std::string& folder, const Config& config, const std::string& path, const std::string& split);
}  // namespace linnet
