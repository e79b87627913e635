#include <unistd.h>
#include <cstdio>
#include <memory>
#include "app/cli/commands.h"
#include "app/cli/input_lines.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/kernels/isa.h"
#include "tasks/task_table.h"

namespace linnet {
namespace {

// Lines read ahead, so that sentences of like length are decoded together; the output keeps their order.
constexpr size_t kSentencesAhead = 1024;

struct TranslateArguments : InferenceOptions {
  std::vector<std::string> folders;
  int n_best = 1;
};

void print_sentences(const std::vector<std::vector<Translation>>& translations, int64_t first_line, int n_best) {
  for (size_t i = 0; i < translations.size(); ++i)
    for (const Translation& translation : translations[i]) {
      if (n_best > 1)
        std::printf("%lld\t%.6f\t", static_cast<long long>(first_line + static_cast<int64_t>(i)), translation.score);
      std::printf("%s\n", translation.text.c_str());
    }
  if (std::fflush(stdout) != 0) fail_errno("cannot write the translations");
}

int translate_input(const TranslateArguments& arguments) {
  const Config config = inference_config(arguments.folders.front(), arguments);
  for (const std::string& folder : arguments.folders)
    if (const char* why = task_actions(inference_config(folder, arguments)).no_translation)
      fail_user("run '" + folder + "' " + why);
  if (arguments.n_best > config.train.beam)
    fail_user("--n-best " + std::to_string(arguments.n_best) + " needs a beam at least as large, which is " +
              std::to_string(config.train.beam));
  force_isa(config.train.isa);
  Translator translator(arguments.folders, config, parse_adapters(arguments.adapters));
  // At a terminal each line is answered at once.
  const size_t ahead = isatty(STDIN_FILENO) ? 1 : kSentencesAhead;
  std::vector<std::string> lines;
  int64_t first = 1;
  const auto answer = [&] {
    print_sentences(translator.translate(lines, arguments.n_best), first, arguments.n_best);
    first += static_cast<int64_t>(lines.size());
    lines.clear();
  };
  InputLines input;
  try {
    for (std::string line; input.next_text(line);) {
      lines.push_back(std::move(line));
      if (lines.size() == ahead) answer();
    }
  } catch (const Error&) {
    answer();  // what came before a bad line is not lost
    throw;
  }
  answer();
  if (translator.cut_lines() > 0)
    log_warning(std::to_string(translator.cut_lines()) + (translator.cut_lines() == 1 ? " line was" : " lines were") +
                " longer than max_seq_len = " + std::to_string(translator.longest()) + " tokens and cut");
  return 0;
}

}  // namespace

void add_translate_command(Command& linnet) {
  auto arguments = std::make_shared<TranslateArguments>();
  linnet.subcommand("translate", "translate standard input, line by line")
      .take("run", arguments->folders,
            "the run folder; with several of them, whose vocabularies are the same, the mean of the models' "
            "probabilities "
            "decides",
            {.required = true})
      .take("--beam", arguments->beams, "beam size (default: the run's); 1 is greedy", {.least = 1, .most = 1024})
      .take("--n-best", arguments->n_best, "the N best translations of each line: number, score, text, with tabs",
            {.least = 1, .most = 1024})
      .take_threads(arguments->threads)
      .take_device(arguments->device)
      .take_languages(arguments->languages.source, arguments->languages.target)
      .take_quantize(arguments->quantize, arguments->keep)
      .take_adapters(arguments->adapters)
      .does([arguments] { return translate_input(*arguments); });
}

}  // namespace linnet
