// `linnet generate`, `linnet chat` and `linnet run`.
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include "app/cli/commands.h"
#include "app/cli/streams-inl.h"
#include "base/fail.h"
#include "base/files.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "engine/kernels/processor.h"
#include "serving/loaded/loaded_model.h"
#include "tasks/generation/text_writer.h"
#include "tasks/images/image_session.h"
#include "tasks/predictor.h"

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
    requests.push_back(
        {.prompt = arguments.prompt ? *arguments.prompt : read_prompt(), .options = arguments, .where = "the prompt"});
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
  catch_stop_signals();           // not earlier: during loading a signal ends the program
  std::signal(SIGPIPE, SIG_DFL);  // `| head` ends it, as other commands
  for (size_t i = 0; i < requests.size() && !(i > 0 && stop_requested()); ++i)
    (arguments.json ? print_generated_json : print_texts)(writer, i, requests[i], arguments);
  log_reuse(writer.counts());
  return 0;
}

constexpr const char* kCommands =
    "/reset forgets the conversation, /system TEXT does so and sets the system message, /quit ends; Ctrl-C stops an "
    "answer";

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
    TextRequest request{.messages = messages_.dump(), .options = arguments_, .where = "the conversation"};
    if (!request.options.max_tokens) request.options.max_tokens = INT32_MAX;  // as many as there is room for
    return model_->prepare(request);
  }

  void answer(const std::string& question) {
    const size_t before = messages_.size();
    add("user", question);
    Engine& engine = model_->engine();
    std::optional<TextJob> job;
    std::optional<WrittenRow> row;
    try {
      row.emplace(job.emplace(prepare()));
      GenerateRequest request = model_->engine_request(*job, answers_++);
      interrupted = false;
      request.listener = [&row](const GeneratedToken& heard) {
        if (heard.token >= 0) show(row->push(heard.token));
        return !row->stopped() && !interrupted;
      };
      engine.submit(std::move(request));
    } catch (const Error& error) {
      messages_.resize(before);
      if (error.kind() != ErrorKind::kUser) throw;
      if (!isatty(STDIN_FILENO)) fail_user(error.what(), "; /reset begins a new conversation");
      std::fprintf(stderr, "linnet: %s; /reset begins a new conversation\n", error.what());
      return;
    }
    // An error from here on ends the command: the engine would go on with the request, whose row is gone.
    while (engine.busy()) engine.step(model_->pool());
    const FinishedRequest finished = std::move(engine.take_finished().at(0));
    show(row->finish(finished.result) + "\n");
    if (finished.reason == EndReason::kCacheFull)
      std::fprintf(stderr, "the conversation has no room for more; /reset begins a new one\n");
    add("assistant", row->text());
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
    if (terminal) std::fputs("> ", stderr);
    asking = terminal;
    const bool goes_on = input.next_text(line);
    asking = false;
    if (!goes_on && terminal) std::fputc('\n', stderr);
    if (!goes_on || !conversation.take(line)) return 0;
  }
}

constexpr int64_t kWaiting = 1024;  // most requests of a batch in the model

struct RunArguments : TextGenerationOptions {
  std::string model, out, isa = "auto";
  bool json = false, resume = false;
  int64_t slots = 8, context = 0;
};

// Returns the number of requests that an earlier run has answered, of which `refused` were wrong. Removes an unfinished
// last line, whose request is answered again.
int64_t answered(const std::string& path, AppendFile& file, int64_t& refused) {
  const std::string text = read_file(path);
  const size_t whole = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
  int64_t count = 0;
  for (size_t start = 0; start < whole; ++count) {
    const size_t end = text.find('\n', start);
    const Json json = Json::parse_or_null(std::string_view(text).substr(start, end - start), JsonLimits::settings());
    if (!json.is_object() || !json.contains("request") || json["request"] != count)
      fail_user("'", path, "', line ", count + 1, ": not the answer to request ", count,
          "; --resume goes on with what `linnet run --jsonl` has written");
    refused += json.contains("error");
    start = end + 1;
  }
  file.truncate_to(whole);
  return count;
}

// Each input line is an image path; answers are the likeliest class with its probability, labels, or numbers.
int run_images(const RunArguments& arguments) {
  constexpr size_t kAtOnce = 16;
  if (arguments.json) fail_user("'", arguments.model, "' classifies images; `linnet predict --json` writes JSON");
  InferenceOptions options{arguments};
  options.adapters.clear();  // only for text models
  const std::unique_ptr<Predictor> predictor =
      open_predictor(arguments.model, options, isatty(STDIN_FILENO) ? 1 : kAtOnce);
  std::optional<AppendFile> file;
  if (!arguments.out.empty()) file.emplace(arguments.out);
  const auto answer = [&](const std::vector<std::string>& paths) {
    for (const Answer& found : predictor->answer(paths, 1)) {
      const std::string line = joined(found.cells, "\t");
      if (file) file->write_line(line);
      else print("{}\n", line);
    }
    flush_output("cannot write the answers");
  };
  answer_lines(answer, kAtOnce);
  if (file) file->sync();
  return 0;
}

int run_opened(const RunArguments& arguments) {
  if (arguments.resume && (arguments.out.empty() || !arguments.json))
    fail_user("--resume goes on with a file of --jsonl: give -o FILE and --jsonl");
  force_isa(arguments.isa);
  if (!arguments.out.empty() && file_exists(arguments.out) && !arguments.resume)
    fail_user("'", arguments.out, "' exists; ", arguments.json ? "--resume goes on with it" : "-o FILE names another");
  if (is_vit_folder(arguments.model) || is_run_of(arguments.model, TaskKind::kImages)) return run_images(arguments);
  LoadedModelOptions resident{arguments};
  resident.text = {arguments.slots, arguments.beams.value_or(0), arguments.context};
  resident.limits.waiting = kWaiting, resident.check = WeightCheck::kLater;
  const std::unique_ptr<LoadedModel> model = open_loaded_model(arguments.model, resident);
  std::optional<AppendFile> file;
  int64_t refused = 0;
  BatchOptions options{.json = arguments.json, .text = arguments, .name = "standard input"};
  if (!arguments.out.empty()) {
    file.emplace(arguments.out);
    if (arguments.resume) options.skip = answered(arguments.out, *file, refused);
  }
  catch_stop_signals();
  std::signal(SIGPIPE, SIG_DFL);
  InputLines input;
  const bool terminal = isatty(STDIN_FILENO);
  const auto next = [&](std::string& line) { return input.next_text(line); };
  const auto take = [&](const std::string& answer) {
    if (file) return file->write_line(answer);
    print_text(answer + "\n");
    if (terminal) flush_output("cannot write the answers");
  };
  // At a terminal each line is answered at once.
  options.ahead = terminal ? 0 : BatchOptions{}.ahead;
  const BatchCounts counts = answer_batch(*model, options, next, take, stop_requested);
  if (file) file->sync();
  flush_output("cannot write the answers");
  if (model->text) log_reuse(model->text->load().counts);
  if (options.skip > 0) log_info("went on after ", options.skip, " answers");
  if (stop_requested())
    log_info("interrupted after ", options.skip + counts.answers, " answers",
        file && arguments.json ? "; the same command with --resume goes on" : "");
  refused += counts.refused;
  if (refused == 0) return 0;
  log_warning(refused, refused == 1 ? " request is" : " requests are", " wrong; \"error\" in the answer says how");
  return 2;
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

void add_run_command(Command& linnet) {
  auto [command, arguments] = linnet.subcommand("run",
      "answer each line of standard input by what the model is: go on from it, translate it, tell "
      "its class (of images: of the file whose path it is), or make a vector of it",
      run_opened);
  command.take("MODEL", arguments.model, "a packed model (linnet pack), a run or a model folder", {.required = true})
      .flag("--jsonl", arguments.json, "requests and answers are lines of JSON, in the same order")
      .take("-o,--out", arguments.out, "write answers to this file instead of standard output", {.type = "FILE"})
      .flag("--resume", arguments.resume, "go on with the answers that are in the file already")
      .take("--max-tokens", arguments.max_tokens, "tokens to write at most", {.least = 1, .most = 1e9})
      .take("--stop", arguments.stop, "end a text before this one; may be given several times")
      .take_sampling(arguments)
      .take("--beam", arguments.beams, "a search of N beams", {.least = 1, .most = 1024})
      .take("--seed", arguments.seed, "of the sampling (default 1)")
      .take("--slots", arguments.slots, "texts that are written at once (default 8)", {.least = 1, .most = 1024})
      .take("--context", arguments.context, "tokens of a text, with its prompt (default: the model's, at most 2048)",
          {.least = 0, .most = 1e7})
      .take_draft(arguments)
      .take("--prefix-cache", arguments.prefix_megabytes,
          "MB for beginnings of prompts, which later requests need not compute; 0: none (default: as much as the "
          "slots take, at most 256)",
          {.least = 0, .most = 1e7})
      .take_adapters(arguments.adapters, true)
      .take_load(arguments)
      .take_isa(arguments.isa);
}
}  // namespace linnet
