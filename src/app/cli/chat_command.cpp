#include <unistd.h>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>
#include "app/cli/commands.h"
#include "app/cli/input_lines.h"
#include "base/error.h"
#include "base/json.h"
#include "engine/kernels/isa.h"
#include "tasks/generation/text_model.h"
#include "tasks/generation/text_writer.h"

namespace linnet {
namespace {

constexpr const char* kCommands =
    "/reset forgets the conversation, /system TEXT does so and sets the system message, /quit ends; Ctrl-C stops an "
    "answer";
constexpr char kPrompt[] = "> ";

struct ChatArguments : TextGenerationOptions {
  std::string model, isa = "auto", system;
  int64_t context = 0;
};

std::atomic<bool> interrupted{false}, asking{false};

// The terminal has thrown away the line that was being typed.
void interrupt(int) {
  interrupted = true;
  if (asking) [[maybe_unused]]
    const ssize_t ignored = ::write(STDERR_FILENO, "\n> ", 3);
}

void print_answer(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (std::fflush(stdout) != 0) fail_errno("cannot write the answer");
}

class Chat {
 public:
  explicit Chat(const ChatArguments& arguments)
      : arguments_(arguments), model_(open_text_model(arguments.model, arguments)), system_(arguments.system) {
    reset();
    add("user", "?");
    prepare();  // a folder without a chat template is refused before its weights are read
    reset();
    model_->plan_resident({.slots = 1, .beams = arguments.beams.value_or(0), .max_length = arguments.context});
  }

  // False: the conversation ends.
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
      fail_user(std::string(error.what()) + "; /reset begins a new conversation");
    }
  }

  std::string write(const TextJob& job) {
    Engine& engine = model_->engine();
    WrittenRow row(job.flow(), job.stops);
    GenerateRequest request = model_->engine_request(job, answers_++);
    interrupted = false;
    request.listener = [&row](const GeneratedToken& heard) {
      if (heard.token >= 0) print_answer(row.push(heard.token));
      return !row.stopped() && !interrupted;
    };
    engine.submit(std::move(request));
    while (engine.busy()) engine.step(model_->pool());
    const FinishedRequest finished = std::move(engine.take_finished().at(0));
    if (job.choice.beams > 1)  // a search knows its text only at the end
      for (const int32_t token : finished.result.tokens) print_answer(row.push(token));
    print_answer(row.finish() + "\n");
    if (finished.reason == EndReason::kCacheFull)
      std::fprintf(stderr, "the conversation has no room for more; /reset begins a new one\n");
    return row.text();
  }

  const ChatArguments arguments_;
  const std::unique_ptr<TextModel> model_;
  std::string system_;
  Json messages_;
  uint64_t answers_ = 0;  // each has draws of its own
};

int chat(const ChatArguments& arguments) {
  force_isa(arguments.isa);
  Chat conversation(arguments);
  const bool terminal = isatty(STDIN_FILENO);
  if (terminal) std::fprintf(stderr, "%s\n", kCommands);
  std::signal(SIGINT, interrupt);  // not before: while the model is loaded Ctrl-C ends the program
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

void add_chat_command(Command& linnet) {
  auto arguments = std::make_shared<ChatArguments>();
  linnet
      .subcommand("chat",
                  "talk with a language model: a question on each line of standard input, by the folder's chat "
                  "template; /reset, /system TEXT and /quit are commands")
      .take("model", arguments->model, "a model folder with a chat template, or what `linnet pack` made of one",
            {.required = true})
      .take("--system", arguments->system, "the system message")
      .take("--max-tokens", arguments->max_tokens, "of an answer (default: as many as there is room for)",
            {.least = 1, .most = 1e9})
      .take("--context", arguments->context, "tokens of the conversation (default: the model's, at most 2048)",
            {.least = 0, .most = 1e7})
      .take_sampling(*arguments)
      .take("--seed", arguments->seed, "of the sampling (default 1)")
      .take_adapters(arguments->adapters)
      .take_threads(arguments->threads)
      .take_device(arguments->device)
      .take_quantize(arguments->quantize, arguments->keep)
      .take_isa(arguments->isa)
      .does([arguments] { return chat(*arguments); });
}

}  // namespace linnet
