// Regression of one or several numbers, such as the similarity of two sentences.
#include <algorithm>
#include <cmath>
#include "base/fail.h"
#include "base/log.h"
#include "base/text.h"
#include "data/metrics/similarity.h"
#include "tasks/texts/text_task.h"

namespace linnet {
namespace {
// Steps of the usual learning rates do not reach larger numbers.
constexpr float kMost = 100;

size_t count_of(const Json& label) { return label.is_array() || label.is_object() ? label.size() : 1; }

class Regression : public TextTask {
 public:
  Regression() : TextTask("regression", TextProblem::kNumbers, LabelForm::Kind::kNumbers, regression_loss) {}

  Names outputs(const TextRecords& train, const std::string&) const override {
    const Json& first = train.records.front().label;
    const size_t count = count_of(first);
    if (count == 0) fail_user(train.records.front().where, ": the list of numbers is empty");
    const Names names = first.is_object() ? mapped(first.items(), &Json::Member::key)
                                          : mapped(count, [](size_t i) { return "LABEL_" + std::to_string(i); });
    float largest = 0;
    for (const TextRecord& record : train.records)  // checks the labels early
      for (const float number : label(record, {}, names)) largest = std::max(largest, std::abs(number));
    if (std::ranges::all_of(train.records, [&](const TextRecord& record) { return record.label == first; }))
      log_warning("all labels are " + label_text(first) + ": there is nothing to learn");
    if (largest > kMost)
      log_warning(
          printed("the labels reach %g: numbers so far from 0 are hardly learned; divide them, for example by %g",
              largest, std::pow(10, std::ceil(std::log10(largest)))));
    return names;
  }

  Names assumed_outputs() const override { return {"LABEL_0"}; }

  std::vector<float> label(const TextRecord& record, const Encoding&, const Names& outputs) const override {
    const auto number = [&](const Json& label) { return static_cast<float>(number_of(label, record.where)); };
    const size_t count = count_of(record.label);
    if (count != outputs.size())
      fail_user(record.where, ": ", count, " numbers as label, and the model gives ", outputs.size());
    if (record.label.is_array()) return mapped(record.label, number);
    if (!record.label.is_object()) return {number(record.label)};
    return mapped(outputs, [&](const std::string& name) {
      const Json* value = record.label.find(name);
      if (!value) fail_user(record.where, ": the label has no \"", name, "\", which the model gives");
      return number(*value);
    });
  }

  // Metrics of several numbers are averaged.
  Measures measure(const TextRecords&, const TextExamples& examples, std::span<const std::vector<float>> predicted,
      const Names& outputs, const Config&) const override {
    double square = 0, absolute = 0, pearson = 0, spearman = 0;
    for (size_t output = 0; output < outputs.size(); ++output) {
      std::vector<double> found, wanted;
      for (size_t i = 0; i < predicted.size(); ++i) {
        found.push_back(predicted[i][output]), wanted.push_back(examples.labels(i)[output]);
        square += (found.back() - wanted.back()) * (found.back() - wanted.back());
        absolute += std::abs(found.back() - wanted.back());
      }
      pearson += pearson_correlation(found, wanted), spearman += spearman_correlation(found, wanted);
    }
    const auto count = static_cast<double>(outputs.size()), all = count * static_cast<double>(predicted.size());
    return {
        {{"pearson", pearson / count}, {"spearman", spearman / count}, {"mse", square / all}, {"mae", absolute / all}}};
  }

  Answer answer(const std::string&, Offsets, Logits logits, const Names&, int64_t) const override {
    Answer answer{.cells = mapped(logits, cell)};
    if (logits.size() == 1) answer.json["number"] = logits[0];
    else answer.json["numbers"] = std::vector<float>(logits.begin(), logits.end());
    return answer;
  }
  Names heading(const Names& names, int64_t) const override { return names.size() == 1 ? Names{"number"} : names; }
};
}  // namespace

const TextTask& regression_task() { return only<Regression>(); }
}  // namespace linnet
