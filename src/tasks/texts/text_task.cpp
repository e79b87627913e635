#include "tasks/texts/text_task.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/numbers.h"
#include "base/text.h"
#include "config/hints.h"
#include "config/text_tasks.h"
#include "models/families/config_file.h"

namespace linnet {
#define LINNET_DECLARE(name, ...) const TextTask& name##_task();
LINNET_TEXT_TASKS(LINNET_DECLARE)

namespace {
#define LINNET_LIST(name, ...) name##_task,
constexpr std::array kTasks{LINNET_TEXT_TASKS(LINNET_LIST)};

// Parses "spam=5,ham=1".
std::vector<double> read_weights(const std::string& asked, const std::vector<std::string>& names) {
  std::vector<double> weights(names.size(), 1);
  for (const std::string_view part : split(asked, ',')) {
    const size_t sign = part.rfind('=');
    const auto weight = parse_number<double>(sign == part.npos ? "" : trimmed(part.substr(sign + 1), " "));
    if (!weight || !(*weight >= 0 && *weight <= 1e6))
      fail_user("class_weights: \"", part, "\" is no CLASS=WEIGHT with a weight from 0 to 1000000");
    const std::string name(trimmed(part.substr(0, sign), " "));
    const auto found = std::ranges::find(names, name);
    if (found == names.end())
      fail_user("class_weights: the training examples have no class \"", name, "\"", did_you_mean(name, names));
    weights[found - names.begin()] = *weight;
  }
  return weights;
}
}  // namespace

Names TextTask::outputs_of(const PretrainedModel& model) const { return label_names(model.config); }

TextExamples TextTask::encode(const TextRecords& records, const PretrainedTokenizer& tokenizer, const Names& outputs,
    const TextClassifier& model, const Config&, int64_t longest, TextUse use) const {
  const EncodeOptions options{.max_length = longest, .offsets = is_of_tokens()};
  TextExamples examples(form(outputs, model, use));
  const auto tokens_of = [&](const TextRecord& record, const EncodeOptions& how) {
    return records.pairs ? tokenizer.encode_pair(record.text, record.pair, how) : tokenizer.encode(record.text, how);
  };
  int64_t cut = 0;
  for (const TextRecord& record : records.records) {
    Encoding encoding = tokens_of(record, options);
    if (encoding.ids.empty()) fail_user(record.where, ": a text without tokens");
    // A text that fills the whole length may have been cut.
    if (use != TextUse::kAsk && std::ssize(encoding.ids) >= longest)
      cut += std::ssize(tokens_of(record, EncodeOptions{.offsets = false}).ids) > longest;
    const size_t numbers = is_of_tokens() ? encoding.ids.size() : static_cast<size_t>(examples.form.numbers);
    const std::vector<float> labels =
        use == TextUse::kAsk ? std::vector<float>(numbers, -1) : label(record, encoding, outputs);
    if (records.pairs) examples.types.push_back(std::move(encoding.segments));
    if (use == TextUse::kAsk && is_of_tokens()) examples.offsets.push_back(std::move(encoding.offsets));
    examples.add(std::move(encoding.ids), labels);
  }
  if (cut > 0)
    log_warning(cut, " of ", records.records.size(), " texts are longer than ", longest, " tokens and are cut there",
        is_of_tokens() ? "; words beyond are neither learned nor judged" : "",
        " (--set context=N takes longer ones, up to the model's)");
  return examples;
}

std::vector<Answer> TextTask::answers(const TextRecords& records, const TextExamples& examples,
    std::span<const std::vector<float>> logits, const Names& outputs, const Config&, int64_t top) const {
  return mapped(records.records.size(), [&](size_t i) {
    return answer(
        records.records[i].text, is_of_tokens() ? Offsets(examples.offsets[i]) : Offsets(), logits[i], outputs, top);
  });
}

std::vector<float> TextTask::label(const TextRecord&, const Encoding&, const Names&) const {
  fail_internal("a task encodes its records, or labels them");
}
Answer TextTask::answer(const std::string&, Offsets, Logits, const Names&, int64_t) const {
  fail_internal("a task answers one text, or all");
}

size_t output_of(const std::string& name, const Names& outputs, const std::string& where, const char* what) {
  const auto found = std::ranges::find(outputs, name);
  if (found == outputs.end())
    fail_user(where, ": the ", what, " '", name, "' is none of the ", outputs.size(),
        " the model was trained on: ", first_names(outputs));
  return static_cast<size_t>(found - outputs.begin());
}

const TextTask& text_task(const Config& config) {
  for (const auto task : kTasks)
    if (task().name == config.data.task) return task();
  fail_internal("\"", config.data.task, "\" is no task on texts");
}

const TextTask& text_task(const OpenedTextClassifier& opened) {
  return opened.is_run ? text_task(opened.config) : text_task(opened.problem());
}

const TextTask& text_task(TextProblem problem) {
  for (const auto task : kTasks)
    if (task().problem == problem) return task();
  fail_internal("no task has this problem");
}

std::string cell(double number) { return printed("%.6f", number); }

Answer class_answer(std::span<const double> probabilities, const std::vector<std::string>& classes, int64_t top) {
  std::vector<size_t> order = numbers_below<size_t>(probabilities.size());
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](size_t i) { return probabilities[i]; });
  order.resize(std::min(order.size(), static_cast<size_t>(top)));
  Answer answer;
  answer.json["label"] = classes[order[0]];
  answer.json["probability"] = probabilities[order[0]];
  for (const size_t i : order) {
    answer.cells.insert(answer.cells.end(), {classes[i], cell(probabilities[i])});
    if (top > 1) answer.json["top"].push_back({{"label", classes[i]}, {"probability", probabilities[i]}});
  }
  return answer;
}

std::vector<std::string> class_heading(int64_t top) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < top; ++i) {
    const std::string rank = i == 0 ? "" : "_" + std::to_string(i + 1);
    names.insert(names.end(), {"label" + rank, "probability" + rank});
  }
  return names;
}

std::vector<float> class_weights(const std::string& asked, const std::vector<std::string>& names,
    const std::vector<int64_t>& counts, int64_t total, bool several) {
  if (asked.empty()) return {};
  if (total == 0) return std::vector<float>(names.size(), 1);  // for plans
  const bool balanced = asked == "balanced";
  std::vector<double> weights = balanced ? std::vector<double>(names.size(), 1) : read_weights(asked, names);
  double sum = 0;  // over the examples
  for (size_t i = 0; i < names.size(); ++i) {
    const auto count = static_cast<double>(std::max<int64_t>(counts[i], 1)), all = static_cast<double>(total);
    if (balanced) weights[i] = several ? (all - count) / count : all / (static_cast<double>(names.size()) * count);
    sum += weights[i] * static_cast<double>(counts[i]);
  }
  if (sum <= 0) fail_user("class_weights = \"", asked, "\" leaves no training example that counts");
  const double scale = several || balanced ? 1 : static_cast<double>(total) / sum;
  return mapped(weights, [&](const double weight) { return static_cast<float>(weight * scale); });
}
}  // namespace linnet
