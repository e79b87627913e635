// Tasks of an encoder with a head on texts: one file of this folder and one row in config/text_tasks.h each
// (docs/add_a_task.md). text_training.cpp has what they share.
#pragma once
#include "base/json.h"
#include "data/examples/text/text_examples.h"
#include "data/metrics/class_report.h"
#include "data/text/pretrained_tokenizer.h"
#include "tasks/texts/text_classifier.h"
#include "tasks/texts/text_records.h"

namespace linnet {
// A model's answer to one input, for `linnet predict`.
struct Answer {
  std::vector<std::string> cells;  // of an output line, before the input
  Json json = Json::object();      // of a JSON line, after the input
};

std::string cell(double number);  // six decimals
// The `top` likeliest classes with probabilities. With top > 1, "top" lists them in JSON.
Answer class_answer(std::span<const double> probabilities, const std::vector<std::string>& classes, int64_t top);
std::vector<std::string> class_heading(int64_t top);

// By names that `metric` in the configuration may have.
using Metrics = std::vector<std::pair<std::string, double>>;
using Names = std::vector<std::string>;
using Logits = std::span<const float>;
using Offsets = std::span<const TextRange>;

struct Measures {
  Metrics metrics;
  std::optional<ClassReport> classes = {};  // empty for numbers
};

// What examples are for: batches, metrics, or unlabeled texts for a model in use.
enum class TextUse { kTrain, kEvaluate, kAsk };

class TextTask {
 public:
  // `problem`: the model's head and what its outputs mean; see `loss` for "labels".
  TextTask(std::string_view name, TextProblem problem, LabelForm::Kind labels, TextLoss* loss)
      : name(name), problem(problem), labels(labels), loss(loss) {}
  virtual ~TextTask() = default;

  virtual TextRecords read(const std::string& path, const DataConfig& data) const {
    return read_text_records(path, data);
  }
  // Texts of a file for a model in use (text_records.h).
  virtual void for_each_text(const std::string& path, const DataConfig& data, bool pairs, const UseText& use) const {
    linnet::for_each_text(path, data, pairs, use);
  }
  // Names of the outputs of a model trained on these records of file `path`. User error for labels that do not fit.
  virtual Names outputs(const TextRecords& train, const std::string& path) const = 0;
  virtual Names outputs_of(const PretrainedModel& model) const;
  virtual Names assumed_outputs() const { return {"0", "1"}; }  // by `linnet plan` without data
  // Tells a new or opened model what its losses and its folder need to know of the data.
  virtual void set_up(
      PretrainedModel&, const Config&, const TextRecords& /*train*/, const TextRecords* /*valid*/) const {}
  // Adapts model and configuration for training, before planning.
  virtual void before_session(TextClassifier&, Config&) const {}
  // Examples of records, by default one each. `longest`: tokens of a text.
  virtual TextExamples encode(const TextRecords& records, const PretrainedTokenizer& tokenizer, const Names& outputs,
      const TextClassifier& model, const Config& config, int64_t longest, TextUse use) const;
  // A record's labels: one number, one for each output, or one for each token of `encoding` (-1: ignored). User error
  // naming the line for a label that does not fit these outputs.
  virtual std::vector<float> label(const TextRecord& record, const Encoding& encoding, const Names& outputs) const;
  // `predicted`: each example's logits or likeliest class, or each token's likeliest class.
  virtual Measures measure(const TextRecords& records, const TextExamples& examples,
      std::span<const std::vector<float>> predicted, const Names& outputs, const Config& config) const = 0;
  // The answer for a text from its logits [outputs] or [tokens, outputs], with the tokens' `offsets` if they have
  // classes; or the answers for all records.
  virtual Answer answer(
      const std::string& text, Offsets offsets, Logits logits, const Names& outputs, int64_t top) const;
  virtual std::vector<Answer> answers(const TextRecords& records, const TextExamples& examples,
      std::span<const std::vector<float>> logits, const Names& outputs, const Config& config, int64_t top) const;
  virtual Names heading(const Names& outputs, int64_t top) const = 0;  // of the answers' cells
  virtual bool may_be_pairs() const { return false; }  // whether a model that takes single texts also takes two
  virtual bool are_pairs() const { return false; }     // whether all texts are pairs
  // The number of answers that a model chooses one from; 1 if it does not choose.
  virtual int64_t choices(const Names& outputs, const Config&) const {
    return problem == TextProblem::kOneClass ? std::ssize(outputs) : 1;
  }

  virtual LabelForm form(const Names& outputs, const TextClassifier&, TextUse) const {
    return {labels, labels == LabelForm::Kind::kNumbers ? static_cast<int64_t>(outputs.size()) : 1};
  }
  bool is_of_tokens() const { return problem == TextProblem::kTokenClasses || problem == TextProblem::kSpans; }

  const std::string_view name;  // the value of data.task
  const TextProblem problem;
  const LabelForm::Kind labels;
  TextLoss* const loss;
};

// The one object of a task.
template <class Task> const TextTask& only() {
  static const Task task;
  return task;
}

// The index of `name`, a record's label, among the outputs. User error naming the line if it is none. `what`: "label".
size_t output_of(const std::string& name, const Names& outputs, const std::string& where, const char* what = "label");

// The task of a configuration, and the one for a model folder's head.
const TextTask& text_task(const Config& config);
const TextTask& text_task(TextProblem problem);  // the first with this problem, as several may share one
const TextTask& text_task(const OpenedTextClassifier& opened);

// The weight of each class by train.class_weights; empty: all equal. `counts`: how many of the `total` training
// examples have each class (with `several`, label). With one class each, the mean over training examples is 1. User
// error for an unknown class.
std::vector<float> class_weights(const std::string& asked, const std::vector<std::string>& names,
    const std::vector<int64_t>& counts, int64_t total, bool several = false);
}  // namespace linnet
