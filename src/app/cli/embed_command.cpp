#include <unistd.h>
#include <cstdio>
#include <memory>
#include "app/cli/commands.h"
#include "app/cli/input_lines.h"
#include "base/error.h"
#include "base/json.h"
#include "base/numbers.h"
#include "models/families/sentence_embedder.h"
#include "serving/loaded/row_worker.h"

namespace linnet {
namespace {

struct EmbedArguments : RowOptions {
  std::string folder, prompt;
  int64_t dimensions = 0;
  bool json = false;
};

// Lines read ahead, so that sentences of like length are computed together; the output keeps their order.
constexpr size_t kTextsAhead = 1024;

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
  if (std::fwrite(out.data(), 1, out.size(), stdout) != out.size() || std::fflush(stdout) != 0)
    fail_errno("cannot write to standard output");
}

int embed_input(const EmbedArguments& arguments) {
  const std::unique_ptr<RowModel> embedder = open_embedder(arguments.folder, arguments);
  const size_t width = embedder->width();
  if (arguments.dimensions > static_cast<int64_t>(width))
    fail_user("--dimensions is " + std::to_string(arguments.dimensions) + ", and the model gives " +
              std::to_string(width));
  const size_t kept = arguments.dimensions > 0 ? static_cast<size_t>(arguments.dimensions) : width;
  const std::string prompt = embedder->prompt(arguments.prompt);
  const size_t ahead = isatty(STDIN_FILENO) ? 1 : kTextsAhead;
  std::vector<std::string> lines;
  std::vector<RowText> sentences;
  const auto answer = [&] {
    std::vector<float> rows = embedder->compute(sentences);
    shorten_rows(rows, width, kept, embedder->is_normalized());
    print_vectors(arguments, lines, rows, kept);
    lines.clear();
    sentences.clear();
  };
  InputLines input;
  int64_t full = 0;
  for (std::string line; input.next_text(line);) {
    sentences.push_back(embedder->encode(prompt + line));
    if (static_cast<int64_t>(sentences.back().tokens.size()) >= embedder->max_tokens()) ++full;
    lines.push_back(std::move(line));
    if (lines.size() == ahead) answer();
  }
  answer();
  if (full > 0)
    std::fprintf(
        stderr, "linnet: %s of these texts %s the %s tokens that the model reads; what follows them was not read\n",
        std::to_string(full).c_str(), full == 1 ? "fills" : "fill", std::to_string(embedder->max_tokens()).c_str());
  return 0;
}

}  // namespace

void add_embed_command(Command& linnet) {
  auto arguments = std::make_shared<EmbedArguments>();
  linnet.subcommand("embed", "a line of numbers for each line of standard input")
      .take("MODEL", arguments->folder,
            "a BERT folder, as sentence-transformers writes them, or a run of a masked language model",
            {.required = true})
      .take("--prompt", arguments->prompt, "a name of config_sentence_transformers.json's prompts, such as query",
            {.type = "NAME"})
      .take("--dimensions", arguments->dimensions, "keep so many numbers of each embedding (Matryoshka embeddings)",
            {.type = "N", .least = 1, .most = 1e6})
      .flag("--json", arguments->json, "lines of {\"text\": ..., \"embedding\": [...]}")
      .take_threads(arguments->threads)
      .take_quantize(arguments->quantize, arguments->keep)
      .take_adapters(arguments->adapters)
      .does([arguments] { return embed_input(*arguments); });
}

}  // namespace linnet
