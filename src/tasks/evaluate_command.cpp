#include <fmt/format.h>
#include "base/fail.h"
#include "config/config.h"
#include "tasks/images/image_session.h"
#include "tasks/language/language_session.h"
#include "tasks/masked/masked_task.h"
#include "tasks/task_table.h"
#include "tasks/texts/text_session.h"
#include "tasks/translation/corpus.h"
#include "training/run/run_folder.h"

namespace linnet {
namespace {
void tell_split(EvaluationAnswer& answer, const std::string& split) { answer.facts.emplace_back("split", split); }

bool names_test_pairs(const Config& config) {
  const DataConfig& data = config.data;
  return task_row(config).origin != ExampleOrigin::kFiles || !data.test_tsv.empty() || !data.test_source.empty() ||
         !data.test_target.empty();
}

ParallelText load_translation_pairs(const EvaluationRequest& request, const Config& config, EvaluationAnswer& answer) {
  if (request.source.empty() != request.target.empty()) fail_user("--source and --target go together");
  const int given = !request.source.empty() + !request.data.empty() + !request.split.empty();
  if (given > 1) fail_user("give one of --split, --data, and --source with --target");
  if (!request.source.empty()) return read_pair(request.source, request.target);
  if (!request.data.empty()) return read_table(request.data, {config.data.text_column, config.data.label_column});
  if (is_translation_folder(request.folder))
    fail_user("'", request.folder, "' is a model; --source and --target, or --data, name a text");
  const bool valid = request.split.empty() ? !names_test_pairs(config) : request.split == "valid";
  tell_split(answer, valid ? "valid" : "test");
  return valid ? load_valid_split(config) : load_test_corpus(config).test;
}

void check_evaluated(const EvaluationRequest& request, const char* instead) {
  if (!request.source.empty()) fail_user("--source and --target are for runs of translation", instead);
  if (!request.data.empty() && !request.split.empty()) fail_user("give either --split or --data");
}

std::string figures(const char* items, const TaskEvaluation& result) {
  std::string line = fmt::format("{} {}  loss {:.4f}", result.items, items, result.loss);
  for (const auto& [name, value] : result.metrics)
    line += fmt::format("  {} {}",
        name == "f1"                ? "F1"
        : name == "f1_macro"        ? "macro F1"
        : name == "f1_weighted"     ? "weighted F1"
        : name == "word_perplexity" ? "per word"
                                    : name,
        name == "words" ? fmt::format("{:.0f}", value) : fmt::format("{:.4f}", value));
  return line;
}

// Of one text or table: the request's, or that of a split, by default of the file `test` if there is one.
EvaluationAnswer evaluate_split(const EvaluationRequest& request, const Config& config, const std::string& test,
    const char* items,
    TaskEvaluation (*evaluate)(
        const std::string& folder, const Config& config, const std::string& path, const std::string& split)) {
  check_evaluated(request, "; --data names a text");
  if (request.data.empty() && !RunFolder(request.folder).has_config())
    fail_user("'", request.folder, "' is a model; --data names a text");
  const std::string split = !request.split.empty() ? request.split : test.empty() ? "valid" : "test";
  EvaluationAnswer answer;
  answer.result = evaluate(request.folder, config, request.data, split);
  if (request.data.empty()) tell_split(answer, split);
  answer.facts.emplace_back(items, answer.result.items);
  answer.line = figures(items, answer.result);
  return answer;
}
}  // namespace

EvaluationAnswer evaluate_translation(const EvaluationRequest& request, const Config& config) {
  EvaluationAnswer answer;
  std::vector<std::string> folders{request.folder};
  folders.insert(folders.end(), request.others.begin(), request.others.end());
  ParallelText text = load_translation_pairs(request, config, answer);
  const bool valid = !answer.facts.empty() && std::get<std::string>(answer.facts[0].second) == "valid";
  const int64_t pairs = std::ssize(text.source);
  answer.facts.emplace_back("pairs", pairs);
  answer.facts.emplace_back("beam", config.train.beam);
  answer.result = evaluate_pairs(folders, config, std::move(text));
  answer.line = fmt::format("{} {}pairs  loss {:.4f}  BLEU {:.2f}  chrF {:.2f}  exact match {:.4f}", pairs,
      valid ? "validation " : "", answer.result.loss, answer.result.metric("bleu"), answer.result.metric("chrf"),
      answer.result.metric("exact_match"));
  answer.conditions = fmt::format("beam {}", config.train.beam);
  return answer;
}

EvaluationAnswer evaluate_language(const EvaluationRequest& request, const Config& config) {
  return evaluate_split(request, config, config.data.test_text, task_row(config).items, evaluate_language_model);
}

EvaluationAnswer evaluate_masked(const EvaluationRequest& request, const Config& config) {
  EvaluationAnswer answer = evaluate_split(request, config, config.data.test_text, "masked", evaluate_masked_model);
  answer.line =
      fmt::format("{} masked tokens  loss {:.4f}  perplexity {:.4f}  masked accuracy {:.4f}", answer.result.items,
          answer.result.loss, answer.result.metric("perplexity"), answer.result.metric("masked_accuracy"));
  return answer;
}

EvaluationAnswer evaluate_texts(const EvaluationRequest& request, const Config& config) {
  return evaluate_split(request, config, config.data.test_tsv, "texts", evaluate_texts_of);
}

EvaluationAnswer evaluate_images(const EvaluationRequest& request, const Config& config) {
  check_evaluated(request, "");
  EvaluationAnswer answer;
  std::string split = request.split, table = request.data;
  if (table.empty() && split != "valid" && !config.data.test_tsv.empty())
    split = "test", table = data_path(config.data, config.data.test_tsv);
  ImageDataset images =
      table.empty() ? load_image_split(config, split) : load_labelled_images(config, request.folder, table);
  if (request.data.empty()) tell_split(answer, split);
  answer.facts.emplace_back("images", images.count);
  answer.result = evaluate_image_run(request.folder, config, std::move(images));
  answer.line = figures("images", answer.result);
  return answer;
}

Config evaluation_config(const std::string& folder) {
  if (const std::optional<Config> run = run_config(folder)) return *run;
  if (is_vit_folder(folder))
    fail_user("'", folder, "' is a ViT's folder; models of images are evaluated as runs (`linnet predict` takes it)");
  if (is_translation_folder(folder)) return translation_folder_config(folder);
  if (is_text_classifier_folder(folder) || is_sentence_folder(folder)) {
    OpenedTextClassifier opened = open_text_classifier(folder);
    opened.config.data.task = text_task(opened.problem()).name;
    return opened.config;
  }
  if (find_family(ConfigFile(folder + "/config.json")).kind != FamilyKind::kEncoder)
    return open_language_model(folder).config;
  Config config;
  config.data.batch_size = 1, config.data.batch_tokens = 0;
  config.data.task = "masked_language";
  return config;
}
}  // namespace linnet
