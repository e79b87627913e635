#include <cstdio>
#include <memory>
#include "app/cli/commands.h"
#include "app/cli/input_lines.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "data/examples/text/parallel_text.h"
#include "tasks/scorer.h"

namespace linnet {
namespace {

struct ScoreArguments : InferenceOptions {
  std::string model, source, target;
  std::vector<std::string> inputs, data;
  bool json = false;
};

class Scores {
 public:
  explicit Scores(const ScoreArguments& arguments)
      : json_(arguments.json), scorer_(open_scorer(arguments.model, arguments)) {}

  bool takes_pairs() const { return scorer_->takes_pairs(); }
  int64_t cut_texts() const { return scorer_->cut_texts(); }

  void print(const std::string& text, const std::string& source) {
    const TextScore score = scorer_->score(text, source);
    if (score.score && json_) {
      std::printf("%s\n", Json{{"text", source}, {"pair", text}, {"score", *score.score}}.dump().c_str());
    } else if (score.score) {
      std::printf("%.6f\t%s\t%s\n", *score.score, source.c_str(), text.c_str());
    } else if (json_) {
      Json json;
      if (takes_pairs()) json["source"] = source;
      json[takes_pairs() ? "target" : "text"] = text;
      json["log_probability"] = score.log_probability;
      json["tokens"] = score.tokens;
      std::printf("%s\n", json.dump().c_str());
    } else {
      std::printf("%.6f\t%lld\t%s%s%s\n", score.log_probability, static_cast<long long>(score.tokens), source.c_str(),
                  takes_pairs() ? "\t" : "", text.c_str());
    }
    if (std::fflush(stdout) != 0) fail_errno("cannot write to standard output");
  }

 private:
  const bool json_;
  std::unique_ptr<Scorer> scorer_;
};

int score(ScoreArguments arguments) {
  if (arguments.source.empty() != arguments.target.empty()) fail_user("--source and --target go together");
  arguments.inputs.insert(arguments.inputs.end(), arguments.data.begin(), arguments.data.end());
  use_isa_of(arguments.model);
  Scores scores(arguments);
  if (!arguments.source.empty()) {
    if (!scores.takes_pairs()) fail_user("--source and --target are for models of translation");
    const ParallelText pairs = read_pair(arguments.source, arguments.target);
    for (size_t i = 0; i < pairs.source.size(); ++i) scores.print(pairs.target[i], pairs.source[i]);
  } else {
    for_each_line(arguments.inputs, [&](const std::string& line, const std::string& where) {
      if (!scores.takes_pairs()) return scores.print(line, "");
      const auto [source, target] = split_pair(line, where);
      scores.print(target, source);
    });
  }
  if (scores.cut_texts() > 0)
    log_warning(std::to_string(scores.cut_texts()) + " pairs were longer than the model takes and cut");
  return 0;
}

}  // namespace

void add_score_command(Command& linnet) {
  auto arguments = std::make_shared<ScoreArguments>();
  linnet
      .subcommand("score",
                  "tell how likely texts or translations are: a line of log probability, tokens and input for each")
      .take("model", arguments->model,
            "a run or model folder of a language model or of translation, or a cross-encoder's folder",
            {.required = true, .type = "MODEL"})
      .take("inputs", arguments->inputs,
            "files with a text on each line; of translation source<TAB>target, of a cross-encoder text<TAB>text "
            "(default: standard input)",
            {.type = "FILE"})
      .take("--data", arguments->data, "the same as an input", {.type = "FILE"})
      .take("--source", arguments->source, "of translation: sources in a file of their own ...", {.type = "FILE"})
      .take("--target", arguments->target, "... and their translations", {.type = "FILE"})
      .flag("--json", arguments->json, "a JSON object on each line")
      .take_threads(arguments->threads)
      .take_device(arguments->device)
      .take_languages(arguments->languages.source, arguments->languages.target)
      .take_quantize(arguments->quantize, arguments->keep)
      .does([arguments] { return score(*arguments); });
}

}  // namespace linnet
