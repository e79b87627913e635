#include "app/bench/translation_bench.h"

#include <sstream>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "tasks/task_table.h"

namespace linnet {
namespace {

std::vector<std::string> lines_of(const std::string& path) {
  std::istringstream text(read_file(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(std::move(line));
  if (lines.empty()) fail_user("'" + path + "' has no lines to translate");
  return lines;
}

}  // namespace

TranslationMeasurement measure_translation(const TranslationBenchOptions& options) {
  const std::vector<std::string> lines = lines_of(options.source);
  Config config = inference_config(options.model, options.inference);
  if (const char* why = task_actions(config).no_translation) fail_user("'" + options.model + "' " + why);
  const double began = now();
  Translator translator({options.model}, config);
  const double loaded = now();
  TranslationMeasurement measured{.load_seconds = loaded - began, .beam = config.train.beam};
  for (std::vector<Translation>& best : translator.translate(lines, 1))
    measured.translations.push_back(std::move(best.front().text));
  measured.seconds = translator.search_seconds();
  measured.token_seconds = now() - loaded - measured.seconds;
  return measured;
}

}  // namespace linnet
