#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/classification_task.h"
#include "app/corpus.h"
#include "app/image_task.h"
#include "app/inference.h"
#include "app/language_task.h"
#include "app/run_folder.h"
#include "base/error.h"
#include "cli/commands.h"
#include "kernels/isa.h"

namespace linnet {
namespace {

struct Arguments : InferenceOptions {
  std::string folder, split, source, target, data_dir, data;
  bool json = false;
};

ParallelText text_of(const Arguments& arguments, const Config& config) {
  if (arguments.source.empty() != arguments.target.empty()) fail_user("--source and --target go together");
  if (!arguments.source.empty() && !arguments.split.empty()) fail_user("give either --split or --source and --target");
  if (!arguments.source.empty()) return read_pair(arguments.source, arguments.target);
  return arguments.split == "valid" ? load_valid_split(config) : load_test_corpus(config).test;
}

const char* split_name(const Arguments& arguments) {
  if (!arguments.data.empty()) return "file";
  if (!arguments.source.empty()) return "files";
  return arguments.split == "valid" ? "valid" : "test";
}

using Json = nlohmann::ordered_json;

// What there was to evaluate, for the answer, and how it went.
Evaluation evaluate_images(const Arguments& arguments, const Config& config, Json& examples) {
  if (!arguments.source.empty()) fail_user("--source and --target are for runs of translation");
  const ImageDataset images = load_image_split(config, split_name(arguments));
  examples["images"] = images.count;
  return evaluate_image_run(arguments.folder, config, images);
}

Evaluation evaluate_translation(const Arguments& arguments, const Config& config, Json& examples) {
  LoadedEvaluation evaluation(arguments.folder, config, text_of(arguments, config));
  examples["pairs"] = evaluation.set->dataset.size();
  examples["beam"] = config.train.beam;
  return evaluation.run();
}

// Without --split or --data: the test text where the configuration names one, or the validation text.
Evaluation evaluate_language(const Arguments& arguments, const Config& config, const OpenedLanguageModel& opened,
                             Json& examples) {
  if (!arguments.source.empty()) fail_user("--source and --target are for runs of translation; --data names a text");
  if (!arguments.data.empty() && !arguments.split.empty()) fail_user("give either --split or --data");
  const std::string split = !arguments.split.empty()        ? arguments.split
                            : config.data.test_text.empty() ? "valid"
                                                            : "test";
  if (arguments.data.empty()) examples["split"] = split;
  if (arguments.data.empty() && !opened.is_run) fail_user("'" + arguments.folder + "' is a model; --data names a text");
  Evaluation result = evaluate_language_model(opened, config, arguments.data, split);
  examples["tokens"] = result.items;
  return result;
}

void print_language(const Evaluation& result, double seconds) {
  std::printf("%lld tokens  loss %.4f", static_cast<long long>(result.items), result.loss);
  for (const auto& [name, value] : result.metrics)
    std::printf(name == "words" ? "  %s %.0f" : "  %s %.4f", name == "word_perplexity" ? "per word" : name.c_str(),
                value);
  std::printf("  (%.1f s)\n", seconds);
}

int evaluate(const Arguments& arguments) {
  const auto began = std::chrono::steady_clock::now();
  std::optional<OpenedLanguageModel> opened;
  if (is_pretrained_folder(arguments.folder) && !RunFolder(arguments.folder).has_config())
    opened = open_language_model(arguments.folder);
  Config config = opened ? opened->config : RunFolder(arguments.folder).load_config();
  apply(arguments, config);
  if (!arguments.data_dir.empty()) config.data.data_dir = arguments.data_dir;
  force_isa(config.train.isa);
  const bool images = config.data.task == "images", language = config.data.task == "language";
  const bool classification = config.data.task == "classification";
  if (!language && !classification && !arguments.data.empty())
    fail_user("--data is for language models and classifiers");
  if (language && !opened) opened = open_language_model(arguments.folder);
  Json json{{"run", arguments.folder}, {"split", split_name(arguments)}};
  const Evaluation result =
      images           ? evaluate_images(arguments, config, json)
      : language       ? evaluate_language(arguments, config, *opened, json)
      : classification ? evaluate_classification_run(arguments.folder, config, arguments.data, split_name(arguments))
                       : evaluate_translation(arguments, config, json);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  if (arguments.json) {
    json["loss"] = result.loss;
    if (classification) json["texts"] = result.items;
    for (const auto& [name, value] : result.metrics)
      if (name == "words")
        json[name] = static_cast<int64_t>(value);
      else
        json[name] = value;
    json["seconds"] = seconds;
    std::printf("%s\n", json.dump().c_str());
  } else if (language) {
    print_language(result, seconds);
  } else if (classification) {
    std::printf("%lld texts  loss %.4f  accuracy %.4f  F1 %.4f  (%.1f s)\n", static_cast<long long>(result.items),
                result.loss, result.metric("accuracy"), result.metric("f1"), seconds);
  } else if (images) {
    std::printf("%lld images  loss %.4f  accuracy %.4f  (%.1f s)\n", static_cast<long long>(result.items), result.loss,
                result.metric("accuracy"), seconds);
  } else {
    std::printf("%lld pairs  loss %.4f  BLEU %.2f  exact match %.4f  (beam %lld, %.1f s)\n",
                json["pairs"].get<long long>(), result.loss, result.metric("bleu"), result.metric("exact_match"),
                static_cast<long long>(config.train.beam), seconds);
  }
  return 0;
}

}  // namespace

void add_eval_command(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("eval", "how good a trained run is: loss and BLEU, or accuracy");
  command->add_option("run", arguments->folder, "the run folder")->required();
  command->add_option("--split", arguments->split, "test (default) or valid, as the run's configuration names them")
      ->check(CLI::IsMember({"test", "valid"}));
  command->add_option("--source", arguments->source, "or a text of your own ...")->type_name("FILE");
  command->add_option("--target", arguments->target, "... and its translation")->type_name("FILE");
  command->add_option("--data", arguments->data, "of a language model: a text of your own (plain, .jsonl or .bin)")
      ->type_name("FILE");
  command->add_option("--data-dir", arguments->data_dir, "where the data lies now (default: where the run had it)")
      ->type_name("DIR");
  command->add_option("--beam", arguments->beams, "beam size (default: the run's)")->check(CLI::Range(1, 1024));
  command->add_option("--threads", arguments->threads)->check(CLI::Range(0, 4096));
  command->add_flag("--json", arguments->json, "one JSON object instead of a line for people");
  command->callback([arguments, &action] { action = [arguments] { return evaluate(*arguments); }; });
}

}  // namespace linnet
