#include <unistd.h>
#include <cstdio>
#include "app/cli/commands.h"
#include "app/cli/input_lines.h"
#include "app/cli/print-inl.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/text.h"
#include "engine/kernels/processor.h"
#include "serving/loaded/batch.h"
#include "tasks/generation/text_writer.h"
#include "tasks/images/image_session.h"
#include "tasks/predictor.h"
#include "training/run/run_folder.h"

namespace linnet {
namespace {
constexpr int64_t kWaiting = 1024;  // most requests of a batch in the model

struct RunArguments : TextGenerationOptions {
  std::string model, out, isa = "auto";
  bool json = false, resume = false;
  int64_t slots = 8, context = 0;
};

// The number of requests that an earlier run has answered. Removes an unfinished last line, which is answered again.
int64_t answered(const std::string& path, AppendFile& file) {
  const std::string text = read_file(path);
  const size_t whole = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
  int64_t count = 0;
  for (size_t start = 0; start < whole; ++count) {
    const size_t end = text.find('\n', start);
    const Json json = Json::parse_or_null(std::string_view(text).substr(start, end - start), JsonLimits::settings());
    if (!json.is_object() || !json.contains("request") || json["request"] != count)
      fail_user("'", path, "', line ", count + 1, ": not the answer to request ", count,
          "; --resume goes on with what `linnet run --jsonl` has written");
    start = end + 1;
  }
  file.truncate_to(whole);
  return count;
}

bool takes_images(const std::string& model) {
  if (is_vit_folder(model)) return true;
  const RunFolder run(model);
  return file_exists(model) && run.has_config() && task_kind(run.load_config()) == TaskKind::kImages;
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
    fail_user("'", arguments.out, "' exists; --resume goes on with it");
  if (takes_images(arguments.model)) return run_images(arguments);
  LoadedModelOptions resident{arguments};
  resident.text = {arguments.slots, arguments.beams.value_or(0), arguments.context};
  resident.limits.waiting = kWaiting, resident.check = WeightCheck::kLater;
  const std::unique_ptr<LoadedModel> model = open_loaded_model(arguments.model, resident);
  std::optional<AppendFile> file;
  BatchOptions options{.json = arguments.json, .text = arguments, .name = "standard input"};
  if (!arguments.out.empty()) {
    file.emplace(arguments.out);
    if (arguments.resume) options.skip = answered(arguments.out, *file);
  }
  catch_stop_signals();
  InputLines input;
  const bool terminal = isatty(STDIN_FILENO);
  const auto next = [&]() -> std::optional<std::string> {
    std::string line;
    if (!input.next_text(line)) return {};
    return line;
  };
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
  if (options.skip > 0) log_info("went on after " + std::to_string(options.skip) + " answers");
  if (stop_requested())
    log_info("interrupted after " + std::to_string(options.skip + counts.answers) + " answers" +
             (file && arguments.json ? "; the same command with --resume goes on" : ""));
  if (counts.refused == 0) return 0;
  log_warning(std::to_string(counts.refused) + (counts.refused == 1 ? " request is" : " requests are") +
              " wrong; \"error\" in the answer says how");
  return 2;
}
}  // namespace

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
      .take(
          "--temperature", arguments.temperature, "above 1 bolder, below 1 more careful, 0: always the likeliest token")
      .take("--top-k", arguments.top_k, "only among the K likeliest tokens; 0: all")
      .take("--top-p", arguments.top_p, "only among the likeliest tokens whose probabilities reach P")
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
