// `linnet generate` and `linnet chat`.
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include "app/cli/commands.h"
#include "app/cli/input_lines.h"
#include "app/cli/print-inl.h"
#include "base/files.h"
#include "base/log.h"
#include "base/signals.h"
#include "engine/kernels/processor.h"
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
  if (text.ends_with('\n')) text.pop_back();  // the line end was not typed as text
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

void show(const std::string& text) {
  print_text(text);
  flush_output("cannot write the text");
}

// Streams a single text; prints several samples once they are finished.
void print_texts(TextWriter& writer, size_t i, const TextRequest& request, const GenerateArguments& arguments) {
  const bool one = arguments.samples == 1, echo = arguments.echo && request.messages.empty() && !request.has_tokens;
  if (i > 0) show("\n");
  if (echo && one) show(request.prompt);
  const std::vector<WrittenText> texts = writer.write(i, [&](const std::string& piece) {
    if (one) show(piece);
    return !stop_requested();
  });
  for (size_t k = 0; k < texts.size() && !one; ++k)
    show((k > 0 ? "\n" : "") + (echo ? request.prompt : "") + texts[k].text + "\n");
  if (one) show("\n");
}

void print_generated_json(
    TextWriter& writer, size_t i, const TextRequest& request, const GenerateArguments& arguments) {
  const auto texts = writer.write(i, [](const std::string&) { return !stop_requested(); });
  for (size_t k = 0; k < texts.size(); ++k)
    show(format_written_text(
             texts[k], request, static_cast<int64_t>(i), static_cast<int64_t>(k), writer.prompt(i), arguments.echo) +
         "\n");
}

int generate(GenerateArguments& arguments) {
  force_isa(arguments.isa);
  arguments.json = arguments.json || !arguments.requests.empty();
  arguments.log_probabilities = arguments.json;
  const std::vector<TextRequest> requests = read_requests(arguments);
  TextWriter writer(arguments.model, requests);
  catch_stop_signals();  // not earlier: during loading a signal ends the program
  for (size_t i = 0; i < requests.size() && !(i > 0 && stop_requested()); ++i)
    (arguments.json ? print_generated_json : print_texts)(writer, i, requests[i], arguments);
  log_reuse(writer.counts());
  return 0;
}

constexpr const char* kCommands =
    "/reset forgets the conversation, /system TEXT does so and sets the system message, /quit ends; Ctrl-C stops an "
    "answer";
constexpr char kPrompt[] = "> ";

struct ChatArguments : TextGenerationOptions {
  std::string model, isa = "auto", system;
  int64_t context = 0;
};

std::atomic<bool> interrupted{false}, asking{false};

// The terminal has discarded the line being typed.
void interrupt(int) {
  interrupted = true;
  if (asking) [[maybe_unused]]
    const ssize_t ignored = ::write(STDERR_FILENO, "\n> ", 3);
}

class Chat {
 public:
  explicit Chat(const ChatArguments& arguments)
      : arguments_(arguments), model_(open_text_model(arguments.model, arguments)), system_(arguments.system) {
    reset();
    add("user", "?");
    prepare();  // refuses a folder without a chat template before reading its weights
    reset();
    model_->plan_resident({.slots = 1, .beams = arguments.beams.value_or(0), .max_length = arguments.context});
  }

  // Returns false to end the conversation.
  bool take(const std::string& line) {
    const size_t space = std::min(line.find(' '), line.size());
    const std::string word = line.substr(0, space);
    if (word == "/quit") return false;
    if (word == "/reset" || word == "/system") {
      if (word == "/system") system_ = line.substr(std::min(space + 1, line.size()));
      reset();
    } else if (line.starts_with('/')) {
      std::fprintf(stderr, "%s\n", kCommands);
    } else if (line.find_first_not_of(" \t") != line.npos) {
      answer(line);
    }
    return true;
  }

 private:
  void reset() {
    messages_ = Json::array();
    if (!system_.empty()) add("system", system_);
  }
  void add(const char* role, const std::string& content) {
    messages_.push_back({{"role", role}, {"content", content}});
  }

  TextJob prepare() const {
    TextRequest request;
    request.options = arguments_, request.where = "the conversation", request.messages = messages_.dump();
    if (!request.options.max_tokens) request.options.max_tokens = INT32_MAX;  // as many as there is room for
    return model_->prepare(request);
  }

  void answer(const std::string& question) {
    const size_t before = messages_.size();
    add("user", question);
    try {
      add("assistant", write(prepare()));
    } catch (const Error& error) {
      messages_.resize(before);
      if (error.kind() != ErrorKind::kUser) throw;
      fail_user(error.what(), "; /reset begins a new conversation");
    }
  }

  std::string write(const TextJob& job) {
    Engine& engine = model_->engine();
    WrittenRow row(job.flow(), job.stops);
    GenerateRequest request = model_->engine_request(job, answers_++);
    interrupted = false;
    request.listener = [&row](const GeneratedToken& heard) {
      if (heard.token >= 0) show(row.push(heard.token));
      return !row.stopped() && !interrupted;
    };
    engine.submit(std::move(request));
    while (engine.busy()) engine.step(model_->pool());
    const FinishedRequest finished = std::move(engine.take_finished().at(0));
    if (job.choice.beams > 1)  // a search only knows its text at the end
      for (const int32_t token : finished.result.tokens) show(row.push(token));
    show(row.finish() + "\n");
    if (finished.reason == EndReason::kCacheFull)
      std::fprintf(stderr, "the conversation has no room for more; /reset begins a new one\n");
    return row.text();
  }

  const ChatArguments arguments_;
  const std::unique_ptr<TextModel> model_;
  std::string system_;
  Json messages_;
  uint64_t answers_ = 0;  // each has its own random draws
};

int chat(const ChatArguments& arguments) {
  force_isa(arguments.isa);
  Chat conversation(arguments);
  const bool terminal = isatty(STDIN_FILENO);
  if (terminal) std::fprintf(stderr, "%s\n", kCommands);
  std::signal(SIGINT, interrupt);  // not earlier: during loading Ctrl-C ends the program
  InputLines input(/*asks=*/true);
  for (std::string line;;) {
    if (terminal) std::fputs(kPrompt, stderr);
    asking = terminal;
    const bool goes_on = input.next_text(line);
    asking = false;
    if (!goes_on && terminal) std::fputc('\n', stderr);
    if (!goes_on) return 0;
    try {
      if (!conversation.take(line)) return 0;
    } catch (const Error& error) {
      if (!terminal || error.kind() != ErrorKind::kUser) throw;
      std::fprintf(stderr, "linnet: %s\n", error.what());
    }
  }
}
}  // namespace

void add_generate_command(Command& linnet) {
  auto [command, arguments] = linnet.subcommand("generate",
      "let a language model go on from a prompt, or an encoder-decoder "
      "answer it; defaults are those of generation_config.json, if any",
      generate);
  command
      .take(
          "model", arguments.model, "a run folder, or a model folder in the layout of Hugging Face", {.required = true})
      .take("--prompt", arguments.prompt, "what to go on from (default: standard input)")
      .take("--prompts", arguments.prompts, "a prompt in each line; -: standard input", {.type = "FILE"})
      .take("--jsonl", arguments.requests,
          "a request in each line, as JSON: \"prompt\", \"messages\" or \"tokens\", and settings of its own; implies "
          "--json; -: standard input",
          {.type = "FILE"})
      .flag("--chat", arguments.chat,
          "the prompt is a question, put by the folder's chat template; each line of standard input is one")
      .take("--system", arguments.system, "the system message before the question of --chat")
      .flag("--json", arguments.json, "a line of JSON for each text, with tokens, log probabilities and why it ended")
      .take("--max-tokens", arguments.max_tokens, "tokens to write at most (default 200)", {.least = 1, .most = 1e9})
      .take("--stop", arguments.stop, "end a text before this one; may be given several times")
      .take_sampling(arguments)
      .take("--beam", arguments.beams, "the likeliest text by a search of N beams, instead of sampling",
          {.least = 1, .most = 1024})
      .take("--length-penalty", arguments.length_penalty, "of the search (default 1)")
      .take("--seed", arguments.seed, "of the sampling (default 1)")
      .take("--samples", arguments.samples, "texts to write (default 1)", {.least = 1, .most = 4096})
      .take_draft(arguments)
      .take("--prefix-cache", arguments.prefix_megabytes,
          "MB for beginnings of prompts, which later prompts need not compute; 0: none (default: for several texts "
          "as much as they take, at most 256)",
          {.least = 0, .most = 1e7})
      .flag("--no-cache", arguments.no_cache, "compute everything again for each token, for comparison")
      .flag("--ignore-end", arguments.ignore_end, "go on after the end of a text")
      .flag("--echo", arguments.echo, "also print the prompt")
      .take_load(arguments)
      .take_languages(arguments.languages.source, arguments.languages.target)
      .take_adapters(arguments.adapters, true)
      .take_isa(arguments.isa);
}

void add_chat_command(Command& linnet) {
  auto [command, arguments] = linnet.subcommand("chat",
      "talk with a language model: a question on each line of standard input, by the folder's chat "
      "template; /reset, /system TEXT and /quit are commands",
      chat);
  command
      .take("model", arguments.model, "a model folder with a chat template, or what `linnet pack` made of one",
          {.required = true})
      .take("--system", arguments.system, "the system message")
      .take("--max-tokens", arguments.max_tokens, "of an answer (default: as many as there is room for)",
          {.least = 1, .most = 1e9})
      .take("--context", arguments.context, "tokens of the conversation (default: the model's, at most 2048)",
          {.least = 0, .most = 1e7})
      .take_sampling(arguments)
      .take("--seed", arguments.seed, "of the sampling (default 1)")
      .take_adapters(arguments.adapters)
      .take_load(arguments)
      .take_isa(arguments.isa);
}
}  // namespace linnet
