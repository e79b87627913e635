#include <CLI/CLI.hpp>
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
  std::string model, prompt, isa = "auto";
  bool has_prompt = false, echo = false;
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
  const std::string prompt = arguments.has_prompt ? arguments.prompt : read_input();
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

void add_generate_command(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("generate",
                                         "let a language model go on from a prompt, or an encoder-decoder answer it; "
                                         "defaults are those of generation_config.json, if any");
  command->add_option("model", arguments->model, "a run folder, or a model folder in the layout of Hugging Face")
      ->required();
  CLI::Option* prompt =
      command->add_option("--prompt", arguments->prompt, "what to go on from (default: standard input)");
  command->add_option("--max-tokens", arguments->max_tokens, "tokens to write at most (default 200)")
      ->check(CLI::Range(1, 1'000'000'000));
  command->add_option("--temperature", arguments->temperature,
                      "above 1 bolder, below 1 more careful, 0: always the likeliest token (default 1)");
  command->add_option("--top-k", arguments->top_k, "only among the K likeliest tokens; 0: all (default)");
  command->add_option("--top-p", arguments->top_p,
                      "only among the likeliest tokens whose probabilities reach P (default 1: all)");
  command->add_option("--repetition-penalty", arguments->repetition_penalty,
                      "above 1: what was there already is less likely");
  command->add_option("--beam", arguments->beams, "the likeliest text by a search of N beams, instead of sampling")
      ->check(CLI::Range(1, 1024));
  command->add_option("--length-penalty", arguments->length_penalty, "of the search (default 1)");
  command->add_option("--seed", arguments->seed, "of the sampling (default 1)");
  command->add_option("--samples", arguments->samples, "texts to write (default 1)")->check(CLI::Range(1, 4096));
  command->add_flag("--no-cache", arguments->no_cache, "compute everything again for each token, for comparison");
  command->add_flag("--ignore-end", arguments->ignore_end, "go on after the end of a text");
  command->add_flag("--echo", arguments->echo, "also print the prompt");
  command->add_option("--threads", arguments->threads)->check(CLI::Range(0, 4096));
  command->add_option("--device", arguments->device, "cpu (default), cuda or cuda:N")->type_name("NAME");
  command->add_option("--isa", arguments->isa, "instruction set of the kernels");
  command->callback([arguments, prompt, &action] {
    arguments->has_prompt = prompt->count() > 0;
    action = [arguments] { return generate(*arguments); };
  });
}

}  // namespace linnet
