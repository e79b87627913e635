#include <algorithm>
#include <cstdio>
#include <memory>
#include "app/cli/commands.h"
#include "app/cli/input_lines.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/signals.h"
#include "engine/kernels/isa.h"
#include "tasks/generation/text_writer.h"

namespace linnet {
namespace {

struct GenerateArguments : TextGenerationOptions {
  std::string model, isa = "auto", prompts, requests, system;
  std::optional<std::string> prompt;
  bool echo = false, json = false, chat = false;
};

std::string read_prompt() {
  std::string text = read_standard_input("; --prompt TEXT gives a prompt");
  if (text.ends_with('\n')) text.pop_back();  // the line's end is not part of what was typed
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

// "-" is standard input.
std::string read_list(const std::string& path) {
  return path == "-" ? read_standard_input("; give a file") : read_input(path);
}

std::vector<TextRequest> read_requests(const GenerateArguments& arguments) {
  const int sources = (arguments.prompt ? 1 : 0) + !arguments.prompts.empty() + !arguments.requests.empty();
  if (sources > 1) fail_user("give one of --prompt, --prompts and --jsonl");
  if (!arguments.system.empty() && !arguments.chat) fail_user("--system is for --chat");
  const auto name = [](const std::string& path) { return path == "-" ? "standard input" : "'" + path + "'"; };
  std::vector<TextRequest> requests;
  if (!arguments.requests.empty()) {
    if (arguments.chat) fail_user("a request of --jsonl says itself that it is a conversation, by \"messages\"");
    requests = parse_text_requests(read_list(arguments.requests), arguments, name(arguments.requests));
  } else if (!arguments.prompts.empty()) {
    requests = split_prompts(read_list(arguments.prompts), arguments, name(arguments.prompts));
  } else if (arguments.chat && !arguments.prompt) {
    requests = split_prompts(read_prompt(), arguments, "standard input");
    std::erase_if(requests, [](const TextRequest& request) { return request.prompt.empty(); });
    if (requests.empty()) fail_user("standard input holds no question");
  } else {
    TextRequest request;
    request.prompt = arguments.prompt ? *arguments.prompt : read_prompt();
    request.options = arguments, request.where = "the prompt";
    requests.push_back(std::move(request));
  }
  if (arguments.chat)
    for (TextRequest& request : requests) request.messages = ask(request.prompt, arguments.system);
  return requests;
}

void print_generated(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (std::fflush(stdout) != 0) fail_errno("cannot write the text");
}

// One text is shown as it comes; several samples, one after another when they are done.
void print_texts(TextWriter& writer, size_t i, const TextRequest& request, const GenerateArguments& arguments) {
  const bool one = arguments.samples == 1, echo = arguments.echo && request.messages.empty() && !request.has_tokens;
  if (i > 0) print_generated("\n");
  if (echo && one) print_generated(request.prompt);
  const std::vector<WrittenText> texts = writer.write(i, [&](const std::string& piece) {
    if (one) print_generated(piece);
    return !stop_requested();
  });
  for (size_t k = 0; k < texts.size() && !one; ++k)
    print_generated((k > 0 ? "\n" : "") + (echo ? request.prompt : "") + texts[k].text + "\n");
  if (one) print_generated("\n");
}

void print_generated_json(TextWriter& writer, size_t i, const TextRequest& request,
                          const GenerateArguments& arguments) {
  const auto texts = writer.write(i, [](const std::string&) { return !stop_requested(); });
  for (size_t k = 0; k < texts.size(); ++k)
    print_generated(format_written_text(texts[k], request, static_cast<int64_t>(i), static_cast<int64_t>(k),
                                        writer.prompt(i), arguments.echo) +
                    "\n");
}

int generate(GenerateArguments arguments) {
  force_isa(arguments.isa);
  arguments.json = arguments.json || !arguments.requests.empty();
  arguments.log_probabilities = arguments.json;
  const std::vector<TextRequest> requests = read_requests(arguments);
  TextWriter writer(arguments.model, requests);
  catch_stop_signals();  // not before: while the model is loaded a signal ends the program
  for (size_t i = 0; i < requests.size() && !(i > 0 && stop_requested()); ++i)
    (arguments.json ? print_generated_json : print_texts)(writer, i, requests[i], arguments);
  log_reuse(writer.counts());
  return 0;
}

}  // namespace

void add_generate_command(Command& linnet) {
  auto arguments = std::make_shared<GenerateArguments>();
  linnet
      .subcommand("generate",
                  "let a language model go on from a prompt, or an encoder-decoder answer it; defaults are those of "
                  "generation_config.json, if any")
      .take("model", arguments->model, "a run folder, or a model folder in the layout of Hugging Face",
            {.required = true})
      .take("--prompt", arguments->prompt, "what to go on from (default: standard input)")
      .take("--prompts", arguments->prompts, "a prompt in each line; -: standard input", {.type = "FILE"})
      .take("--jsonl", arguments->requests,
            "a request in each line, as JSON: \"prompt\", \"messages\" or \"tokens\", and settings of its own; "
            "implies --json; -: standard input",
            {.type = "FILE"})
      .flag("--chat", arguments->chat,
            "the prompt is a question, put by the folder's chat template; each line of standard input is one")
      .take("--system", arguments->system, "the system message before the question of --chat")
      .flag("--json", arguments->json, "a line of JSON for each text, with tokens, log probabilities and why it ended")
      .take("--max-tokens", arguments->max_tokens, "tokens to write at most (default 200)", {.least = 1, .most = 1e9})
      .take("--stop", arguments->stop, "end a text before this one; may be given several times")
      .take_sampling(*arguments)
      .take("--beam", arguments->beams, "the likeliest text by a search of N beams, instead of sampling",
            {.least = 1, .most = 1024})
      .take("--length-penalty", arguments->length_penalty, "of the search (default 1)")
      .take("--seed", arguments->seed, "of the sampling (default 1)")
      .take("--samples", arguments->samples, "texts to write (default 1)", {.least = 1, .most = 4096})
      .take("--draft", arguments->draft,
            "a smaller model of the same tokenizer that guesses tokens, which the model checks several in one step: "
            "the same texts, sooner",
            {.type = "MODEL"})
      .take("--draft-tokens", arguments->draft_tokens, "tokens that the draft model guesses at once (default 4)",
            {.least = 1, .most = 64})
      .take("--prefix-cache", arguments->prefix_megabytes,
            "MB for beginnings of prompts, which later prompts need not compute; 0: none (default: for several texts "
            "as much as they take, at most 256)",
            {.least = 0, .most = 1e7})
      .flag("--no-cache", arguments->no_cache, "compute everything again for each token, for comparison")
      .flag("--ignore-end", arguments->ignore_end, "go on after the end of a text")
      .flag("--echo", arguments->echo, "also print the prompt")
      .take_threads(arguments->threads)
      .take_device(arguments->device)
      .take_languages(arguments->languages.source, arguments->languages.target)
      .take_quantize(arguments->quantize, arguments->keep)
      .take_adapters(arguments->adapters, true)
      .take_isa(arguments->isa)
      .does([arguments] { return generate(*arguments); });
}

}  // namespace linnet
