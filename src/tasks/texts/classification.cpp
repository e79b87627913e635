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
// Whether a label splits at `separator` into several parts that are all labels.
bool is_several(const std::string& label, char separator, const std::set<std::string>& names) {
  const std::vector<std::string_view> parts = split(label, separator);
  return parts.size() > 1 &&
         std::ranges::all_of(parts, [&](std::string_view part) { return names.contains(std::string(trimmed(part))); });
}

// User error for labels that are no classes: fractions, or several in one, such as "a,b" beside "a" and "b".
void check_are_classes(const std::set<std::string>& names, const std::string& path, bool images) {
  const std::string learns = std::string(" as labels, and task = \"") + (images ? "images" : "classification") +
                             "\" learns classes; --set data.task=" + (images ? "images_" : "");
  bool are_numbers = true;
  std::string fraction;
  for (const std::string& name : names) {
    const std::optional<double> value = parse_finite(name);
    are_numbers = are_numbers && value;
    if (value && *value != std::floor(*value)) fraction = name;
  }
  if (are_numbers && !fraction.empty())
    fail_user("'", path, "' has numbers such as ", fraction, learns, "regression learns numbers");
  for (const std::string& name : names)
    for (const char separator : {',', ';', '|'})
      if (is_several(name, separator, names))
        fail_user(
            "'", path, "' has several labels in one, such as '", name, "',", learns, "several_labels learns several");
}

// Whole numbers 0..n-1 stand for themselves; other labels are numbered in byte order.
Names class_names(const std::set<std::string>& names) {
  const Names numbers = mapped(names.size(), [](size_t i) { return std::to_string(i); });
  const bool counted = std::ranges::all_of(numbers, [&](const auto& number) { return names.contains(number); });
  return counted ? numbers : Names(names.begin(), names.end());
}

// "negative: 3310, positive: 3610": the most frequent classes.
std::string class_counts(const Names& labels, const Names& classes) {
  std::vector<std::pair<int64_t, std::string>> counts;
  for (const std::string& name : classes) counts.emplace_back(-std::ranges::count(labels, name), name);
  std::ranges::stable_sort(counts, {}, [](const auto& count) { return count.first; });
  return first_names(mapped(counts, [](const auto& count) { return text_of_parts(count.second, ": ", -count.first); }));
}

// A label that occurs once among many is more often a heading or a mistake than a class.
void warn_of_rare_labels(const std::string& first, const Names& labels, const Names& classes) {
  constexpr int64_t kMany = 20;
  for (const std::string& name : classes)
    if (std::ranges::count(labels, name) == 1 && std::ssize(labels) >= kMany * std::ssize(classes))
      log_warning("the label '" + name + "' occurs once in the training file: check that it is meant as a class" +
                  (name == labels.front() ? heading_hint(first) : ""));
}

class Classification : public TextTask {
 public:
  Classification() : TextTask("classification", TextProblem::kOneClass, LabelForm::Kind::kClass, classification_loss) {}

  Names outputs(const TextRecords& train, const std::string& path) const override {
    const Names labels = train.labels();
    const std::set<std::string> names(labels.begin(), labels.end());
    for (const TextRecord& record : train.records) {
      if (label_text(record.label).empty()) fail_user(record.where, ": the label is empty");
      if (record.label.is_array() || record.label.is_object())
        fail_user(record.where, ": the label ", label_text(record.label), " is not one class; ",
            "--set data.task=", train.images ? "images_" : "", "several_labels learns several");
    }
    check_are_classes(names, path, train.images);
    const Names classes = class_names(names);
    if (classes.size() < 2) fail_user("'", path, "' has one label only: there is nothing to tell apart");
    log_info("classes: " + class_counts(labels, classes));
    warn_of_rare_labels(train.records.front().where, labels, classes);
    return classes;
  }

  std::vector<float> label(const TextRecord& record, const Encoding&, const Names& outputs) const override {
    return {static_cast<float>(output_of(label_text(record.label), outputs, record.where))};
  }

  Measures measure(const TextRecords&, const TextExamples& examples, std::span<const std::vector<float>> predicted,
      const Names& outputs, const Config&) const override {
    ClassReport report(outputs);
    for (size_t i = 0; i < predicted.size(); ++i)
      report.add(static_cast<size_t>(predicted[i][0]), static_cast<size_t>(examples.labels(i)[0]));
    Metrics metrics = report.metrics();
    metrics.emplace_back("f1", report.f1());
    return {std::move(metrics), std::move(report)};
  }

  Answer answer(const std::string&, Offsets, Logits logits, const Names& outputs, int64_t top) const override {
    return class_answer(softmax_rows({logits.begin(), logits.end()}, outputs.size()), outputs, top);
  }
  Names heading(const Names&, int64_t top) const override { return class_heading(top); }
};
}  // namespace

const TextTask& classification_task() { return only<Classification>(); }
}  // namespace linnet
