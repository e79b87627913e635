// What is learned of texts by an encoder with a head. Each task is one file of this folder with one object, which
// text_task.cpp lists, and a row in config/task_rows.cpp (docs/add_a_task.md). Reading, batches, memory, training,
// evaluation by several ranks, plans and predictions are the same for all of them (text_training.h).
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/examples/text/text_examples.h"
#include "data/metrics/class_report.h"
#include "data/text/pretrained_tokenizer.h"
#include "tasks/answer.h"
#include "tasks/texts/text_classifier.h"
#include "tasks/texts/text_records.h"

namespace linnet {

// By the names that `metric` in the configuration may have.
using Metrics = std::vector<std::pair<std::string, double>>;
using Names = std::vector<std::string>;

struct Measures {
  Metrics metrics;
  std::optional<ClassReport> classes = {};  // empty: of numbers
};

class TextTask {
 public:
  // `problem` says which head the model has and what its outputs mean; see `loss` for "labels".
  TextTask(std::string_view name, TextProblem problem, LabelForm::Kind labels, TextLoss* loss)
      : name(name), problem(problem), labels(labels), loss(loss) {}
  virtual ~TextTask() = default;

  // The records of a file.
  virtual TextRecords read(const std::string& path, const DataConfig& data) const {
    return read_text_records(path, data);
  }
  // The texts of a file that a model is asked about (text_records.h).
  virtual void for_each_text(const std::string& path, const DataConfig& data, bool pairs, const UseText& use) const {
    linnet::for_each_text(path, data, pairs, use);
  }
  // What the outputs of a model are called that learns from these records. User error for labels that do not fit the
  // task; `path` is their file.
  virtual Names outputs(const TextRecords& train, const std::string& path) const = 0;
  // The labels of a record: one number, one for each output, or one for each token of `encoding` (-1: does not count).
  // User error, naming the line, for a label that a model with these outputs cannot have.
  virtual std::vector<float> label(const TextRecord& record, const Encoding& encoding, const Names& outputs) const = 0;
  // `predicted`: of each example its logits, or with classes of tokens the likeliest class of each token.
  virtual Measures measure(const TextExamples& examples, std::span<const std::vector<float>> predicted,
                           const Names& outputs) const = 0;
  // Of a single text, from its logits: [outputs], or [tokens, outputs].
  virtual Answer answer(const std::string& text, const Encoding& encoding, std::span<const float> logits,
                        const Names& outputs, int64_t top) const = 0;
  virtual Names heading(int64_t top) const = 0;  // of the answers' cells

  LabelForm form(const Names& outputs) const {
    return {labels, labels == LabelForm::Kind::kNumbers ? static_cast<int64_t>(outputs.size()) : 1};
  }

  const std::string_view name;  // of data.task
  const TextProblem problem;
  const LabelForm::Kind labels;
  TextLoss* const loss;
};

// The task of a configuration, and the one that a model folder's head is for.
const TextTask& text_task(const Config& config);
const TextTask& text_task(TextProblem problem);

}  // namespace linnet
