#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include "app/cli/commands.h"
#include "base/json.h"
#include "base/log.h"
#include "base/process_memory.h"
#include "data/metrics/text_scores.h"
#include "tasks/task_table.h"
#include "tasks/translation/corpus.h"
#include "tasks/translation/translation_task.h"
#include "training/run/training_run.h"

namespace linnet {
namespace {

constexpr size_t kShownTexts = 10;

struct Score {
  double exact_match, worst_format;
};

// The trained model on dates it has not seen, in every format.
Score show_test(TranslationTask& task) {
  const Config& config = task.session().config;
  Corpus corpus = load_test_corpus(config);
  const EvaluationSet set(std::move(corpus.test), task.tokenizers(), config.model.max_seq_len);
  SharedWork alone = SharedWork::alone();
  const auto translations = translate(task.session(), set, set.dataset.size(), alone);
  std::map<int, std::pair<int, int>> right_and_all;
  int right = 0;
  for (size_t i = 0; i < translations.size(); ++i) {
    const bool good = is_exact_match(translations[i], set.text.target[i]);
    auto& [good_here, all] = right_and_all[corpus.test_formats[i]];
    right += good, good_here += good, ++all;
    if (i < kShownTexts)
      std::printf("%-40s %s%s\n", set.text.source[i].c_str(), translations[i].c_str(),
                  good ? "" : ("   should be " + set.text.target[i]).c_str());
  }
  double worst = 1;
  for (const auto& [format, counts] : right_and_all)
    worst = std::min(worst, static_cast<double>(counts.first) / counts.second);
  return {static_cast<double>(right) / static_cast<double>(translations.size()), worst};
}

int demo(const std::string& folder, bool resume, const std::vector<std::string>& settings) {
  ConfigArguments arguments;
  arguments.config = "dates";
  arguments.settings = settings;
  const TrainRequest request{arguments.load(), folder, resume, ""};
  Score score{};
  const TrainOutcome outcome = run_training(request, make_training_task, [&](TrainingTask& task) {
    score = show_test(dynamic_cast<TranslationTask&>(task));
  });
  if (outcome.stopped) return 0;
  const Json json{{"task", "dates"},
                  {"exact_match", score.exact_match},
                  {"worst_format", score.worst_format},
                  {"train_seconds", outcome.train_seconds},
                  {"peak_memory_mb", static_cast<double>(peak_resident_bytes()) / 1e6},
                  {"predicted_peak_mb", static_cast<double>(outcome.predicted_peak) / 1e6}};
  std::printf("%s\n", json.dump().c_str());
  log_info("`echo \"May 1, 2031\" | linnet translate " + folder + "` asks it");
  return 0;
}

}  // namespace

void add_demo_command(Command& linnet) {
  struct Arguments {
    std::string folder = "runs/demo";
    bool resume = false;
    std::vector<std::string> settings;
  };
  auto arguments = std::make_shared<Arguments>();
  linnet.subcommand("demo", "train the dates preset and show what it learned")
      .take("--run", arguments->folder, "the run folder", {.type = "DIR"})
      .take("--set", arguments->settings, "change one key of the preset", {.type = "KEY=VALUE"})
      .flag("--resume", arguments->resume, "go on with an existing run folder")
      .does([arguments] { return demo(arguments->folder, arguments->resume, arguments->settings); });
}

}  // namespace linnet
