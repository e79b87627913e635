#include <cmath>
#include <filesystem>
#include "app/cli/commands.h"
#include "app/cli/print-inl.h"
#include "base/files.h"
#include "base/timeline.h"
#include "engine/kernels/processor.h"
#include "tasks/task_table.h"

namespace linnet {
namespace {
struct EvalArguments : EvaluationRequest {
  std::vector<std::string> folders;
  std::string data_dir;
  bool json = false;
};

const char* split_name(const EvalArguments& arguments) {
  if (!arguments.data.empty()) return "file";
  if (!arguments.source.empty()) return "files";
  return arguments.split == "valid" ? "valid" : "test";
}

void print_scores_json(const EvalArguments& arguments, const EvaluationAnswer& answer, double seconds) {
  Json json{{"run", arguments.folder}, {"split", split_name(arguments)}};
  for (const auto& [name, value] : answer.facts)
    std::visit([&, key = name](const auto& known) { json[key] = known; }, value);
  json["loss"] = answer.result.loss;
  for (const auto& [name, value] : answer.result.metrics)
    if (name == "words" || name == "tokens") json[name] = static_cast<int64_t>(value);
    else json[name] = value;
  if (answer.result.classes) json.update(answer.result.classes->json());
  json["seconds"] = seconds;
  print_json(json);
}

// Looks for the run's data in another folder, also by the names of files with absolute paths.
void move_data(Config& config, const std::string& folder) {
  if (config.data.data_dir.empty())
    for (std::string* file : data_files(config)) {
      const std::string name = std::filesystem::path(*file).filename().string();
      if (!name.empty() && file_exists(folder + "/" + name)) *file = name;
    }
  config.data.data_dir = folder;
}

int evaluate(EvalArguments& arguments) {
  const double began = now();
  arguments.folder = arguments.folders.front();
  arguments.others.assign(arguments.folders.begin() + 1, arguments.folders.end());
  Config config = evaluation_config(arguments.folder);
  if (!arguments.others.empty() && task_kind(config) != TaskKind::kTranslation)
    fail_user("several runs are evaluated together where they translate, and '", arguments.folder, "' does not");
  apply(arguments, config, arguments.folder);
  if (!arguments.data_dir.empty()) move_data(config, arguments.data_dir);
  force_isa(config.train.isa);
  const EvaluationAnswer answer = task_actions(config).evaluate(arguments, config);
  // The loss of zero tokens is undefined, and JSON cannot represent NaN.
  if (!std::isfinite(answer.result.loss)) fail_user("the loss is not a number: the model's weights are broken");
  const double seconds = now() - began;
  if (arguments.json) return print_scores_json(arguments, answer, seconds), 0;
  print("{}  ({}{}{:.1f} s)\n", answer.line, answer.conditions, answer.conditions.empty() ? "" : ", ", seconds);
  if (answer.result.classes) print_text(answer.result.classes->text());
  return 0;
}
}  // namespace

void add_eval_command(Command& linnet) {
  auto [command, arguments] =
      linnet.subcommand("eval", "how good a model is: loss with BLEU, perplexity or accuracy", evaluate);
  command
      .take("run", arguments.folders,
          "the run folder, or a model folder in the layout of Hugging Face; several of translation are evaluated as "
          "one",
          {.required = true})
      .take("--split", arguments.split, "test (default) or valid, as the run's configuration names them",
          {.choices = {"test", "valid"}})
      .take("--source", arguments.source, "or a text of your own ...", {.type = "FILE"})
      .take("--target", arguments.target, "... and its translation", {.type = "FILE"})
      .take("--data", arguments.data,
          "of a language model: a text of your own (plain, .jsonl or .bin); of a classifier or of translation: a "
          ".tsv; of images: a folder",
          {.type = "FILE"})
      .take(
          "--data-dir", arguments.data_dir, "where the data lies now (default: where the run had it)", {.type = "DIR"})
      .take("--beam", arguments.beams, "beam size (default: the run's)", {.least = 1, .most = 1024})
      .flag("--json", arguments.json, "one JSON object instead of a line for people")
      .take_load(arguments)
      .take_languages(arguments.languages.source, arguments.languages.target);
}
}  // namespace linnet
