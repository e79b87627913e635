// A classifier of texts or of their tokens with its planned memory, one plan for each padded length.
#pragma once
#include "tasks/session.h"
#include "tasks/teacher.h"
#include "tasks/texts/text_task.h"
#include "training/run/training_task.h"

namespace linnet {

// Examples of records, as a model with these outputs takes them.
TextExamples encode_texts(const TextRecords& records, const TextTask& task, const PretrainedTokenizer& tokenizer,
                          const Names& outputs, int64_t longest);

class TextSession : public Session {
 public:
  TextSession(const Config& config, const TextTask& task, TextClassifier& model, Names outputs, bool pairs,
              bool training, bool verify_plans = true, const std::shared_ptr<const Teacher>& teacher = {});

  // The logits of each example: [outputs], or [tokens, outputs].
  std::vector<std::vector<float>> logits(const TextExamples& examples);
  Evaluation evaluate(const TextExamples& examples, SharedWork& ranks);

  const int64_t rows;
  const std::vector<int64_t> lengths;
  const TextTask& task;
  const Names outputs;

 private:
  bool of_tokens() const { return task.labels == LabelForm::Kind::kTokenClasses; }
  // The logits of a batch that was evaluated, [rows, outputs] or [rows, length, outputs].
  const float* logits_of(const Batch& batch) {
    return trainer->evaluation_output(batch.shape_index, "logits").as<const float>();
  }

  TextClassifier& model_;
};

}  // namespace linnet
