#include "tasks/texts/text_task.h"
#include <algorithm>
#include <array>
#include "base/fail.h"
#include "base/log.h"
#include "config/text_tasks.h"
#include "models/families/labels.h"

namespace linnet {
#define LINNET_DECLARE(name, ...) const TextTask& name##_task();
LINNET_TEXT_TASKS(LINNET_DECLARE)

namespace {
#define LINNET_LIST(name, ...) name##_task,
constexpr std::array kTasks{LINNET_TEXT_TASKS(LINNET_LIST)};
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
    log_warning(std::to_string(cut) + " of " + std::to_string(records.records.size()) + " texts are longer than " +
                std::to_string(longest) + " tokens and are cut there" +
                (is_of_tokens() ? "; words beyond are neither learned nor judged" : "") +
                " (--set context=N takes longer ones, up to the model's)");
  return examples;
}

std::vector<Answer> TextTask::answers(const TextRecords& records, const TextExamples& examples,
    std::span<const std::vector<float>> logits, const Names& outputs, const Config&, int64_t top) const {
  std::vector<Answer> answers;
  for (size_t i = 0; i < records.records.size(); ++i)
    answers.push_back(answer(records.records[i].text,
        is_of_tokens() ? std::span<const TextRange>(examples.offsets[i]) : std::span<const TextRange>(), logits[i],
        outputs, top));
  return answers;
}

std::vector<float> TextTask::label(const TextRecord&, const Encoding&, const Names&) const {
  fail_internal("a task encodes its records, or labels them");
}
Measures TextTask::measure(const TextExamples&, std::span<const std::vector<float>>, const Names&) const {
  fail_internal("a task measures its examples, or its records");
}
Answer TextTask::answer(
    const std::string&, std::span<const TextRange>, std::span<const float>, const Names&, int64_t) const {
  fail_internal("a task answers one text, or all");
}

size_t output_of(const std::string& name, const Names& outputs, const std::string& where, const char* what) {
  const auto found = std::ranges::find(outputs, name);
  if (found == outputs.end())
    fail_user(where, ": the ", what, " '", name, "' is none of the ", outputs.size(), " the model was trained on");
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
}  // namespace linnet
