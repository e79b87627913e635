#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/corpus.h"
#include "app/inference.h"
#include "app/run_folder.h"
#include "base/error.h"
#include "cli/commands.h"
#include "kernels/isa.h"

namespace linnet {
namespace {

struct Arguments : InferenceOptions {
  std::string folder, split, source, target;
  bool json = false;
};

ParallelText text_of(const Arguments& arguments, const Config& config) {
  if (arguments.source.empty() != arguments.target.empty()) fail_user("--source and --target go together");
  if (!arguments.source.empty() && !arguments.split.empty()) fail_user("give either --split or --source and --target");
  if (!arguments.source.empty()) return read_pair(arguments.source, arguments.target);
  return arguments.split == "valid" ? load_valid_split(config) : load_test_corpus(config).test;
}

int evaluate(const Arguments& arguments) {
  const auto began = std::chrono::steady_clock::now();
  const Config config = inference_config(arguments.folder, arguments);
  force_isa(config.train.isa);
  LoadedEvaluation evaluation(arguments.folder, config, text_of(arguments, config));
  const EvaluationResult result = evaluation.run();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  if (arguments.json) {
    const nlohmann::ordered_json json{
        {"run", arguments.folder},
        {"split", arguments.source.empty() ? (arguments.split.empty() ? "test" : arguments.split) : "files"},
        {"pairs", evaluation.set->dataset.size()},
        {"beam", config.train.beam},
        {"loss", result.loss},
        {"bleu", result.bleu.score},
        {"exact_match", result.exact_match},
        {"seconds", seconds}};
    std::printf("%s\n", json.dump().c_str());
  } else {
    std::printf("%lld pairs  loss %.4f  BLEU %.2f  exact match %.4f  (beam %lld, %.1f s)\n",
                static_cast<long long>(evaluation.set->dataset.size()), result.loss, result.bleu.score,
                result.exact_match, static_cast<long long>(config.train.beam), seconds);
  }
  return 0;
}

}  // namespace

void add_eval_command(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("eval", "loss, BLEU and exact match of a trained run");
  command->add_option("run", arguments->folder, "the run folder")->required();
  command->add_option("--split", arguments->split, "test (default) or valid, as the run's configuration names them")
      ->check(CLI::IsMember({"test", "valid"}));
  command->add_option("--source", arguments->source, "or a text of your own ...")->type_name("FILE");
  command->add_option("--target", arguments->target, "... and its translation")->type_name("FILE");
  command->add_option("--beam", arguments->beams, "beam size (default: the run's)")->check(CLI::Range(1, 1024));
  command->add_option("--threads", arguments->threads)->check(CLI::Range(0, 4096));
  command->add_flag("--json", arguments->json, "one JSON object instead of a line for people");
  command->callback([arguments, &action] { action = [arguments] { return evaluate(*arguments); }; });
}

}  // namespace linnet
