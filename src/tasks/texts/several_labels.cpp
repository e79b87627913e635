// Multi-label classification.
#include <set>
#include "base/fail.h"
#include "base/log.h"
#include "base/numbers.h"
#include "base/text.h"
#include "data/examples/text/record_reader.h"
#include "tasks/texts/text_classifier.h"
#include "tasks/texts/text_task.h"

namespace linnet {
namespace {
constexpr double kThreshold = 0.5;  // of a label's probability

// Whether the field of a label says that the text has it: 1 or 0, or true or false in any letter case.
bool has_label(const Json& value, const std::string& where) {
  const std::string text = lower_ascii(label_text(value));
  if (text == "true" || text == "false") return text == "true";
  const double number = number_of(value, where);
  if (number != 0 && number != 1) fail_user(where, ": the label '", text, "' is neither 0 nor 1");
  return number == 1;
}

// A list in JSON, or an object with a value for each label; in a table "a|b", "a;b" or "a,b", by the first of these
// separators that occurs.
Names read_labels(const TextRecord& record) {
  if (record.label.is_object()) {
    Names labels;
    for (const auto& [name, value] : record.label.items())
      if (has_label(value, record.where)) labels.push_back(name);
    return labels;
  }
  if (record.label.is_array()) return mapped(record.label, label_text);
  Names labels;
  std::string text = label_text(record.label);
  if (text.starts_with('[')) {  // a list as JSON or Python writes it
    std::string in_python = text;
    if (text.find('"') == text.npos) replace_all(in_python, "'", "\"");  // else only quotes around a label
    for (const auto& [from, to] : {std::pair{"['", "[\""}, {"']", "\"]"}, {"', ", "\", "}, {", '", ", \""}})
      replace_all(in_python, from, to);
    Json list = Json::parse_or_null(text, JsonLimits::settings());
    if (list.is_null()) list = Json::parse_or_null(in_python, JsonLimits::settings());
    if (!list.is_array()) fail_user(record.where, ": the labels ", text, " are no list; write a|b or [\"a\", \"b\"]");
    return mapped(list, label_text);
  }
  char separator = ',';
  for (const char each : {';', '|'})
    if (text.find(each) != text.npos) separator = each;
  for (const std::string_view part : split(text, separator))
    if (!trimmed(part).empty()) labels.emplace_back(trimmed(part));
  return labels;
}

// User error for a number for each class (transformers' form), such as [1, 0, 0] or [true, false, false].
Names labels_of_record(const TextRecord& record) {
  Names labels = read_labels(record);
  for (const std::string& label : labels)
    if (std::ranges::count(labels, label) > 1 && (parse_finite(label) || label == "true" || label == "false"))
      fail_user(record.where, ": the labels ", label_text(record.label), " have ", label,
          " twice; labels are a list of names such as [\"a\", \"b\"], or --label-column A,B names a field for each");
  return labels;
}

class SeveralLabels : public TextTask {
 public:
  SeveralLabels()
      : TextTask("several_labels", TextProblem::kSeveralClasses, LabelForm::Kind::kNumbers, several_labels_loss) {}

  Names outputs(const TextRecords& train, const std::string& path) const override {
    std::set<std::string> names;
    size_t most = 0;
    for (const TextRecord& record : train.records) {
      const Names labels = labels_of_record(record);
      names.insert(labels.begin(), labels.end());
      if (record.label.is_object())  // also those that no text has
        for (const auto& [name, value] : record.label.items()) names.insert(name);
      most = std::max(most, labels.size());
    }
    if (names.empty()) fail_user("'", path, "' has no label");
    log_info(names.size(), " labels, up to ", most, " at once: ", first_names({names.begin(), names.end()}));
    return {names.begin(), names.end()};
  }

  std::vector<float> label(const TextRecord& record, const Encoding&, const Names& outputs) const override {
    std::vector<float> has(outputs.size(), 0);
    for (const std::string& label : labels_of_record(record)) has[output_of(label, outputs, record.where)] = 1;
    return has;
  }

  // "f1" is over all decisions (micro), "f1_macro" the mean over labels, "accuracy" the share with all labels right.
  Measures measure(const TextRecords&, const TextExamples& examples, std::span<const std::vector<float>> predicted,
      const Names& outputs, const Config&) const override {
    ClassReport report(outputs, false);
    int64_t right = 0;
    for (size_t i = 0; i < predicted.size(); ++i) {
      bool all = true;
      for (size_t k = 0; k < outputs.size(); ++k) {
        const bool found = sigmoid(predicted[i][k]) > kThreshold, wanted = examples.labels(i)[k] > kThreshold;
        report.counts[k].add(found, wanted);
        all = all && found == wanted;
      }
      right += all;
    }
    const DecisionCounts total = report.total();
    return {{{"f1", total.f1()}, {"f1_macro", report.macro().f1}, {"precision", total.precision()},
                {"recall", total.recall()},
                {"accuracy", static_cast<double>(right) / static_cast<double>(predicted.size())}},
        std::move(report)};
  }

  Answer answer(const std::string&, Offsets, Logits logits, const Names& outputs, int64_t) const override {
    std::string names, chances;
    Answer answer;
    answer.json["labels"] = Json::array();
    for (size_t i = 0; i < outputs.size(); ++i) {
      const double probability = sigmoid(logits[i]);
      answer.json["probabilities"][outputs[i]] = probability;
      if (probability <= kThreshold) continue;
      answer.json["labels"].push_back(outputs[i]);
      names += (names.empty() ? "" : "|") + outputs[i], chances += (chances.empty() ? "" : "|") + cell(probability);
    }
    answer.cells = {names, chances};
    return answer;
  }
  Names heading(const Names&, int64_t) const override { return {"labels", "probabilities"}; }
};
}  // namespace

const TextTask& several_labels_task() { return only<SeveralLabels>(); }
}  // namespace linnet
