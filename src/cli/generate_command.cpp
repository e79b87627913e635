#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>

#include "app/text_generation.h"
#include "base/error.h"
#include "base/signals.h"
#include "cli/commands.h"
#include "kernels/isa.h"

namespace linnet {
namespace {

struct Arguments : TextGenerationOptions {
  std::string model, isa = "auto";
  std::optional<std::string> prompt;  // standard input
  bool echo = false;
};

std::string read_input() {
  std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  if (std::cin.bad()) fail_system("cannot read standard input");
  if (text.ends_with('\n')) text.pop_back();  // the line's end is not part of what was typed
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (std::fflush(stdout) != 0) fail_system("cannot write the text");
}

int generate(const Arguments& arguments) {
  force_isa(arguments.isa);
  const std::string prompt = arguments.prompt ? *arguments.prompt : read_input();
  catch_stop_signals();
  const std::unique_ptr<TextWriter> generation = open_text_writer(arguments.model, prompt, arguments);
  const bool one = arguments.samples == 1;
  if (arguments.echo && one) print(prompt);
  // One text is shown as it comes; several, one after another when they are done.
  const std::vector<std::string> texts = generation->run([&](const std::string& piece) {
    if (one) print(piece);
    return !stop_requested();
  });
  for (size_t i = 0; i < texts.size() && !one; ++i) {
    if (i > 0) print("\n");
    print((arguments.echo ? prompt : "") + texts[i] + "\n");
  }
  if (one) print("\n");
  return 0;
}

}  // namespace

void add_generate_command(Command& linnet) {
  auto arguments = std::make_shared<Arguments>();
  linnet
      .subcommand("generate",
                  "let a language model go on from a prompt, or an encoder-decoder answer it; defaults are those of "
                  "generation_config.json, if any")
      .take("model", arguments->model, "a run folder, or a model folder in the layout of Hugging Face",
            {.required = true})
      .take("--prompt", arguments->prompt, "what to go on from (default: standard input)")
      .take("--max-tokens", arguments->max_tokens, "tokens to write at most (default 200)", {.least = 1, .most = 1e9})
      .take("--temperature", arguments->temperature,
            "above 1 bolder, below 1 more careful, 0: always the likeliest token (default 1)")
      .take("--top-k", arguments->top_k, "only among the K likeliest tokens; 0: all (default)")
      .take("--top-p", arguments->top_p, "only among the likeliest tokens whose probabilities reach P (default 1: all)")
      .take("--repetition-penalty", arguments->repetition_penalty, "above 1: what was there already is less likely")
      .take("--beam", arguments->beams, "the likeliest text by a search of N beams, instead of sampling",
            {.least = 1, .most = 1024})
      .take("--length-penalty", arguments->length_penalty, "of the search (default 1)")
      .take("--seed", arguments->seed, "of the sampling (default 1)")
      .take("--samples", arguments->samples, "texts to write (default 1)", {.least = 1, .most = 4096})
      .flag("--no-cache", arguments->no_cache, "compute everything again for each token, for comparison")
      .flag("--ignore-end", arguments->ignore_end, "go on after the end of a text")
      .flag("--echo", arguments->echo, "also print the prompt")
      .take_threads(arguments->threads)
      .take_device(arguments->device)
      .take_isa(arguments->isa)
      .does([arguments] { return generate(*arguments); });
}

}  // namespace linnet
