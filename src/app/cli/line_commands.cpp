// `linnet translate`, `linnet embed` and `linnet score`: lines in, lines out.
#include <unistd.h>
#include <cstdio>
#include "app/cli/commands.h"
#include "app/cli/input_lines.h"
#include "app/cli/print-inl.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/numbers.h"
#include "data/examples/text/parallel_text.h"
#include "engine/kernels/processor.h"
#include "models/families/sentence_embedder.h"
#include "serving/loaded/row_worker.h"
#include "tasks/task_table.h"

namespace linnet {
namespace {
struct TranslateArguments : InferenceOptions {
  std::vector<std::string> folders;
  int n_best = 1;
};

int translate_input(const TranslateArguments& arguments) {
  const Config config = inference_config(arguments.folders.front(), arguments);
  for (const std::string& folder : arguments.folders)
    if (const char* why = task_actions(inference_config(folder, arguments)).no_translation)
      fail_user("run '", folder, "' ", why);
  if (arguments.n_best > config.train.beam)
    fail_user("--n-best ", arguments.n_best, " needs a beam at least as large, which is ", config.train.beam);
  force_isa(config.train.isa);
  Translator translator(arguments.folders, config, parse_adapters(arguments.adapters));
  int64_t number = 0;
  answer_lines([&](const std::vector<std::string>& lines) {
    for (const std::vector<Translation>& best : translator.translate(lines, arguments.n_best)) {
      ++number;
      for (const Translation& translation : best) {
        if (arguments.n_best > 1) print("{}\t{:.6f}\t", number, translation.score);
        print("{}\n", translation.text);
      }
    }
    flush_output("cannot write the translations");
  });
  if (translator.cut_lines() > 0)
    log_warning(std::to_string(translator.cut_lines()) + (translator.cut_lines() == 1 ? " line was" : " lines were") +
                " longer than max_seq_len = " + std::to_string(translator.longest()) + " tokens and cut");
  return 0;
}

struct EmbedArguments : ModelLoad {
  std::string folder, prompt;
  int64_t dimensions = 0;
  bool json = false;
};

void print_vectors(const EmbedArguments& arguments, const std::vector<std::string>& lines,
    std::span<const float> embeddings, size_t width) {
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (arguments.json) out += "{\"text\":" + Json(lines[i]).dump() + ",\"embedding\":[";
    for (size_t j = 0; j < width; ++j) {
      if (j > 0) out += arguments.json ? ',' : ' ';
      append_shortest(out, embeddings[i * width + j]);
    }
    out += arguments.json ? "]}\n" : "\n";
  }
  print_text(out);
  flush_output();
}

int embed_input(const EmbedArguments& arguments) {
  const std::unique_ptr<RowModel> embedder = open_embedder(arguments.folder, arguments);
  const size_t width = embedder->width;
  if (arguments.dimensions > static_cast<int64_t>(width))
    fail_user("--dimensions is ", arguments.dimensions, ", and the model gives ", width);
  const size_t kept = arguments.dimensions > 0 ? static_cast<size_t>(arguments.dimensions) : width;
  const std::string prompt = embedder->prompt(arguments.prompt);
  int64_t full = 0;
  answer_lines([&](const std::vector<std::string>& lines) {
    std::vector<RowText> sentences;
    for (const std::string& line : lines) {
      sentences.push_back(embedder->encode(prompt + line));
      full += std::ssize(sentences.back().tokens) >= embedder->max_tokens;
    }
    std::vector<float> rows = embedder->compute(sentences);
    shorten_rows(rows, width, kept, embedder->is_normalized);
    print_vectors(arguments, lines, rows, kept);
  });
  if (full > 0)
    fmt::print(stderr,
        "linnet: {} of these texts {} the {} tokens that the model reads; what follows them was not read\n", full,
        full == 1 ? "fills" : "fill", embedder->max_tokens);
  return 0;
}

struct ScoreArguments : InferenceOptions {
  std::string model, source, target;
  std::vector<std::string> inputs, data;
  bool json = false;
};

int score(ScoreArguments& arguments) {
  if (arguments.source.empty() != arguments.target.empty()) fail_user("--source and --target go together");
  arguments.inputs.insert(arguments.inputs.end(), arguments.data.begin(), arguments.data.end());
  use_isa_of(arguments.model);
  const std::unique_ptr<Scorer> scorer = open_scorer(arguments.model, arguments);
  const bool pairs = scorer->takes_pairs();
  const auto print_score = [&](const std::string& text, const std::string& source) {
    const TextScore found = scorer->score(text, source);
    if (found.score && arguments.json) {
      print_json({{"text", source}, {"pair", text}, {"score", *found.score}});
    } else if (found.score) {
      print("{:.6f}\t{}\t{}\n", *found.score, source, text);
    } else if (arguments.json) {
      Json json;
      if (pairs) json["source"] = source;
      json[pairs ? "target" : "text"] = text;
      json["log_probability"] = found.log_probability;
      json["tokens"] = found.tokens;
      print_json(json);
    } else {
      print("{:.6f}\t{}\t{}{}{}\n", found.log_probability, found.tokens, source, pairs ? "\t" : "", text);
    }
    flush_output();
  };
  if (!arguments.source.empty()) {
    if (!pairs) fail_user("--source and --target are for models of translation");
    const ParallelText read = read_pair(arguments.source, arguments.target);
    for (size_t i = 0; i < read.source.size(); ++i) print_score(read.target[i], read.source[i]);
  } else {
    for_each_line(arguments.inputs, [&](const std::string& line, const std::string& where) {
      if (!pairs) return print_score(line, "");
      const auto [source, target] = split_pair(line, where);
      print_score(target, source);
    });
  }
  if (scorer->cut_texts() > 0)
    log_warning(std::to_string(scorer->cut_texts()) + " pairs were longer than the model takes and cut");
  return 0;
}
}  // namespace

void add_translate_command(Command& linnet) {
  auto [command, arguments] = linnet.subcommand("translate", "translate standard input, line by line", translate_input);
  command
      .take("run", arguments.folders,
          "the run folder; with several of them, whose vocabularies are the same, the mean of the models' "
          "probabilities decides",
          {.required = true})
      .take("--beam", arguments.beams, "beam size (default: the run's); 1 is greedy", {.least = 1, .most = 1024})
      .take("--n-best", arguments.n_best, "the N best translations of each line: number, score, text, with tabs",
          {.least = 1, .most = 1024})
      .take_load(arguments)
      .take_languages(arguments.languages.source, arguments.languages.target)
      .take_adapters(arguments.adapters);
}

void add_embed_command(Command& linnet) {
  auto [command, arguments] =
      linnet.subcommand("embed", "a line of numbers for each line of standard input", embed_input);
  command
      .take("MODEL", arguments.folder,
          "a BERT folder, as sentence-transformers writes them, or a run of a masked language model",
          {.required = true})
      .take("--prompt", arguments.prompt, "a name of config_sentence_transformers.json's prompts, such as query",
          {.type = "NAME"})
      .take("--dimensions", arguments.dimensions, "keep so many numbers of each embedding (Matryoshka embeddings)",
          {.type = "N", .least = 1, .most = 1e6})
      .flag("--json", arguments.json, "lines of {\"text\": ..., \"embedding\": [...]}")
      .take_threads(arguments.threads)
      .take_quantize(arguments.quantize, arguments.keep)
      .take_adapters(arguments.adapters);
}

void add_score_command(Command& linnet) {
  auto [command, arguments] = linnet.subcommand("score",
      "tell how likely texts or translations are: a line of log probability, tokens and input for each", score);
  command
      .take("model", arguments.model,
          "a run or model folder of a language model or of translation, or a cross-encoder's folder",
          {.required = true, .type = "MODEL"})
      .take("inputs", arguments.inputs,
          "files with a text on each line; of translation source<TAB>target, of a cross-encoder text<TAB>text "
          "(default: standard input)",
          {.type = "FILE"})
      .take("--data", arguments.data, "the same as an input", {.type = "FILE"})
      .take("--source", arguments.source, "of translation: sources in a file of their own ...", {.type = "FILE"})
      .take("--target", arguments.target, "... and their translations", {.type = "FILE"})
      .flag("--json", arguments.json, "a JSON object on each line")
      .take_load(arguments)
      .take_languages(arguments.languages.source, arguments.languages.target);
}
}  // namespace linnet
