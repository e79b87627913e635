#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/classification_task.h"
#include "app/corpus.h"
#include "app/image_task.h"
#include "app/inference.h"
#include "app/language_task.h"
#include "app/masked_task.h"
#include "app/run_folder.h"
#include "base/error.h"
#include "cli/commands.h"
#include "kernels/isa.h"
#include "pretrained/pretrained.h"

namespace linnet {
namespace {

using Json = nlohmann::ordered_json;

struct Arguments : InferenceOptions {
  std::string folder, split, source, target, data_dir, data;
  bool json = false;
};

bool names_test_text(const DataConfig& data) {
  return data.task != "text" || !data.test_tsv.empty() || !data.test_source.empty() || !data.test_target.empty();
}

// The pairs to evaluate on; `split` is told where the configuration names them.
ParallelText text_of(const Arguments& arguments, const Config& config, Json& examples) {
  if (arguments.source.empty() != arguments.target.empty()) fail_user("--source and --target go together");
  const int given = !arguments.source.empty() + !arguments.data.empty() + !arguments.split.empty();
  if (given > 1) fail_user("give one of --split, --data, and --source with --target");
  if (!arguments.source.empty()) return read_pair(arguments.source, arguments.target);
  if (!arguments.data.empty()) return read_tsv(arguments.data);
  if (is_translation_folder(arguments.folder))
    fail_user("'" + arguments.folder + "' is a model; --source and --target, or --data, name a text");
  const bool valid = arguments.split.empty() ? !names_test_text(config.data) : arguments.split == "valid";
  examples["split"] = valid ? "valid" : "test";
  return valid ? load_valid_split(config) : load_test_corpus(config).test;
}

const char* split_name(const Arguments& arguments) {
  if (!arguments.data.empty()) return "file";
  if (!arguments.source.empty()) return "files";
  return arguments.split == "valid" ? "valid" : "test";
}

// What there was to evaluate, for the answer, and how it went.
Evaluation evaluate_images(const Arguments& arguments, const Config& config, Json& examples) {
  if (!arguments.source.empty()) fail_user("--source and --target are for runs of translation");
  if (!arguments.data.empty() && !arguments.split.empty()) fail_user("give either --split or --data");
  std::string split = arguments.split;
  const ImageDataset images = arguments.data.empty() ? load_image_split(config, split)
                                                     : load_labelled_images(config, arguments.folder, arguments.data);
  if (arguments.data.empty()) examples["split"] = split;
  examples["images"] = images.count;
  return evaluate_image_run(arguments.folder, config, images);
}

Evaluation evaluate_translation(const Arguments& arguments, const Config& config, Json& examples) {
  LoadedEvaluation evaluation(arguments.folder, config, text_of(arguments, config, examples));
  examples["pairs"] = evaluation.set->dataset.size();
  examples["beam"] = config.train.beam;
  return evaluation.run();
}

// The split a command without --split or --data means: the test text where the configuration names one.
std::string split_of(const Arguments& arguments, const Config& config) {
  if (!arguments.source.empty()) fail_user("--source and --target are for runs of translation; --data names a text");
  if (!arguments.data.empty() && !arguments.split.empty()) fail_user("give either --split or --data");
  if (!arguments.split.empty()) return arguments.split;
  return config.data.test_text.empty() ? "valid" : "test";
}

Evaluation evaluate_language(const Arguments& arguments, const Config& config, const OpenedLanguageModel& opened,
                             Json& examples) {
  const std::string split = split_of(arguments, config);
  if (arguments.data.empty()) examples["split"] = split;
  if (arguments.data.empty() && !opened.is_run) fail_user("'" + arguments.folder + "' is a model; --data names a text");
  Evaluation result = evaluate_language_model(opened, config, arguments.data, split);
  examples["tokens"] = result.items;
  return result;
}

Evaluation evaluate_masked(const Arguments& arguments, const Config& config, Json& examples) {
  const std::string split = split_of(arguments, config);
  if (arguments.data.empty()) examples["split"] = split;
  if (arguments.data.empty() && !RunFolder(arguments.folder).has_config())
    fail_user("'" + arguments.folder + "' is a model; --data names a text");
  Evaluation result = evaluate_masked_model(arguments.folder, config, arguments.data, split);
  examples["masked"] = result.items;
  return result;
}

void print_language(const Evaluation& result, double seconds) {
  std::printf("%lld tokens  loss %.4f", static_cast<long long>(result.items), result.loss);
  for (const auto& [name, value] : result.metrics)
    std::printf(name == "words" ? "  %s %.0f" : "  %s %.4f", name == "word_perplexity" ? "per word" : name.c_str(),
                value);
  std::printf("  (%.1f s)\n", seconds);
}

void print_masked(const Evaluation& result, double seconds) {
  std::printf("%lld masked tokens  loss %.4f  perplexity %.4f  masked accuracy %.4f  (%.1f s)\n",
              static_cast<long long>(result.items), result.loss, result.metric("perplexity"),
              result.metric("masked_accuracy"), seconds);
}

// The loss of zero tokens is undefined, and JSON cannot represent NaN.
void check_loss(const Evaluation& result) {
  if (!std::isfinite(result.loss)) fail_user("the loss is not a number: the model's weights are broken");
}

void print_json(Json& json, const Evaluation& result, double seconds) {
  json["loss"] = result.loss;
  for (const auto& [name, value] : result.metrics)
    if (name == "words" || name == "tokens")
      json[name] = static_cast<int64_t>(value);
    else
      json[name] = value;
  json["seconds"] = seconds;
  std::printf("%s\n", json.dump().c_str());
}

void print_line(const std::string& task, const Json& json, const Evaluation& result, double seconds) {
  if (task == "language") return print_language(result, seconds);
  if (task == "masked_language") return print_masked(result, seconds);
  if (task == "classification")
    std::printf("%lld texts  loss %.4f  accuracy %.4f  F1 %.4f  (%.1f s)\n", static_cast<long long>(result.items),
                result.loss, result.metric("accuracy"), result.metric("f1"), seconds);
  else if (task == "images")
    std::printf("%lld images  loss %.4f  accuracy %.4f  (%.1f s)\n", static_cast<long long>(result.items), result.loss,
                result.metric("accuracy"), seconds);
  else
    std::printf("%lld %spairs  loss %.4f  BLEU %.2f  chrF %.2f  exact match %.4f  (beam %lld, %.1f s)\n",
                json["pairs"].get<long long>(), json["split"] == "valid" ? "validation " : "", result.loss,
                result.metric("bleu"), result.metric("chrf"), result.metric("exact_match"),
                json["beam"].get<long long>(), seconds);
}

// Of a run, or made up for a model folder by what it holds.
Config config_of(const std::string& folder) {
  if (!is_pretrained_folder(folder) || RunFolder(folder).has_config()) return RunFolder(folder).load_config();
  if (is_translation_folder(folder)) return translation_folder_config(folder);
  Config config;
  config.data.batch_size = 1, config.data.batch_tokens = 0;
  if (is_text_classifier_folder(folder)) return open_text_classifier(folder).config;
  const std::string family = find_family(ConfigFile(folder + "/config.json")).model_type;
  config.data.task = family == "bert" ? "masked_language" : "language";
  return config;
}

int evaluate(const Arguments& arguments) {
  const auto began = std::chrono::steady_clock::now();
  Config config = config_of(arguments.folder);
  const std::string& task = config.data.task;
  std::optional<OpenedLanguageModel> opened;
  if (task == "language") opened = open_language_model(arguments.folder), config = opened->config;
  apply(arguments, config);
  if (!arguments.data_dir.empty()) config.data.data_dir = arguments.data_dir;
  force_isa(config.train.isa);
  Json json{{"run", arguments.folder}, {"split", split_name(arguments)}};
  const auto classify = [&] {
    const bool valid = arguments.split == "valid" || (arguments.split.empty() && config.data.test_tsv.empty());
    if (arguments.data.empty()) json["split"] = valid ? "valid" : "test";
    Evaluation result = evaluate_classification_run(arguments.folder, config, arguments.data, valid ? "valid" : "test");
    json["texts"] = result.items;
    return result;
  };
  const Evaluation result = task == "images"            ? evaluate_images(arguments, config, json)
                            : task == "language"        ? evaluate_language(arguments, config, *opened, json)
                            : task == "masked_language" ? evaluate_masked(arguments, config, json)
                            : task == "classification"  ? classify()
                                                        : evaluate_translation(arguments, config, json);
  check_loss(result);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  if (arguments.json)
    print_json(json, result, seconds);
  else
    print_line(task, json, result, seconds);
  return 0;
}

}  // namespace

void add_eval_command(Command& linnet) {
  auto arguments = std::make_shared<Arguments>();
  linnet.subcommand("eval", "how good a model is: loss with BLEU, perplexity or accuracy")
      .take("run", arguments->folder, "the run folder, or a model folder in the layout of Hugging Face",
            {.required = true})
      .take("--split", arguments->split, "test (default) or valid, as the run's configuration names them",
            {.choices = {"test", "valid"}})
      .take("--source", arguments->source, "or a text of your own ...", {.type = "FILE"})
      .take("--target", arguments->target, "... and its translation", {.type = "FILE"})
      .take(
          "--data", arguments->data,
          "of a language model: a text of your own (plain, .jsonl or .bin); of a classifier or of translation: a .tsv; "
          "of images: a folder",
          {.type = "FILE"})
      .take("--data-dir", arguments->data_dir, "where the data lies now (default: where the run had it)",
            {.type = "DIR"})
      .take("--beam", arguments->beams, "beam size (default: the run's)", {.least = 1, .most = 1024})
      .flag("--json", arguments->json, "one JSON object instead of a line for people")
      .take_threads(arguments->threads)
      .take_device(arguments->device)
      .does([arguments] { return evaluate(*arguments); });
}

}  // namespace linnet
