// What is learned of texts by an encoder with a head. Each task is one file of this folder with one object, and a row
// in config/text_tasks.h (docs/add_a_task.md). Reading, batches, memory, training,
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

// What examples are made for: batches, measures, or a model that is asked about texts without labels.
enum class TextUse { kTrain, kEvaluate, kAsk };

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
  virtual Names outputs_of(const PretrainedModel& model) const;
  virtual Names assumed_outputs() const { return {"0", "1"}; }  // by `linnet plan` without data
  // Tells a model that was opened or made what its losses and its folder need to know of the data.
  virtual void set_up(PretrainedModel&, const Config&, const TextRecords& /*train*/,
                      const TextRecords* /*valid*/) const {}
  // Settles between the model and the configuration how it is trained, before it is planned.
  virtual void before_session(TextClassifier&, Config&) const {}
  // The examples of records, one each unless overridden. `longest`: tokens of a text.
  virtual TextExamples encode(const TextRecords& records, const PretrainedTokenizer& tokenizer, const Names& outputs,
                              const TextClassifier& model, const Config& config, int64_t longest, TextUse use) const;
  // The labels of a record: one number, one for each output, or one for each token of `encoding` (-1: does not count).
  // User error, naming the line, for a label that a model with these outputs cannot have.
  virtual std::vector<float> label(const TextRecord& record, const Encoding& encoding, const Names& outputs) const;
  // `predicted`: of each example its logits, or with classes of tokens the likeliest class of each token. A task
  // overrides one of both: that with the records, if it needs their texts.
  virtual Measures measure(const TextExamples& examples, std::span<const std::vector<float>> predicted,
                           const Names& outputs) const;
  virtual Measures measure(const TextRecords&, const TextExamples& examples,
                           std::span<const std::vector<float>> predicted, const Names& outputs, const Config&) const {
    return measure(examples, predicted, outputs);
  }
  // Of a single text, from its logits: [outputs], or [tokens, outputs]. `offsets`: of its tokens, where those have
  // classes. Or of all records at once.
  virtual Answer answer(const std::string& text, std::span<const TextRange> offsets, std::span<const float> logits,
                        const Names& outputs, int64_t top) const;
  virtual std::vector<Answer> answers(const TextRecords& records, const TextExamples& examples,
                                      std::span<const std::vector<float>> logits, const Names& outputs,
                                      const Config& config, int64_t top) const;
  virtual Names heading(int64_t top) const = 0;        // of the answers' cells
  virtual bool may_be_pairs() const { return false; }  // whether a model that takes single texts also takes two
  virtual bool are_pairs() const { return false; }     // whether all texts are pairs
  // How many answers a model chooses from.
  virtual int64_t choices(const Names& outputs, const Config&) const { return std::ssize(outputs); }

  virtual LabelForm form(const Names& outputs, const TextClassifier&, TextUse) const {
    return {labels, labels == LabelForm::Kind::kNumbers ? static_cast<int64_t>(outputs.size()) : 1};
  }
  // Whether there are logits for each token.
  bool is_of_tokens() const { return problem == TextProblem::kTokenClasses || problem == TextProblem::kSpans; }

  const std::string_view name;  // of data.task
  const TextProblem problem;
  const LabelForm::Kind labels;
  TextLoss* const loss;
};

// Where `name`, the label of a record, stands among the outputs of a model. User error, naming the line, where it does
// not. `what`: "label".
size_t output_of(const std::string& name, const Names& outputs, const std::string& where, const char* what = "label");

// The task of a configuration, and the one that a model folder's head is for.
const TextTask& text_task(const Config& config);
const TextTask& text_task(TextProblem problem);  // the first with this problem, as several may share one
const TextTask& text_task(const OpenedTextClassifier& opened);

}  // namespace linnet
