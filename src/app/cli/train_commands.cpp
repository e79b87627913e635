// `linnet train`, `linnet sweep`, `linnet demo`, `linnet check`, `linnet profile` and `linnet eval`.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include "app/bench/bench.h"
#include "app/cli/commands.h"
#include "app/cli/streams-inl.h"
#include "base/files.h"
#include "base/log.h"
#include "base/process.h"
#include "base/thread_pool.h"
#include "base/timeline.h"
#include "config/config_keys.h"
#include "data/metrics/text_scores.h"
#include "distributed/comm/agreement.h"
#include "distributed/comm/world.h"
#include "engine/exec/backend.h"
#include "engine/kernels/processor.h"
#include "tasks/check_subject.h"
#include "tasks/task_table.h"
#include "tasks/translation/corpus.h"
#include "tasks/translation/translation_session.h"
#include "training/run/run_folder.h"
#include "training/run/run_reporter.h"
#include "training/run/run_setup.h"
#include "training/run/sweep.h"
#include "training/trainer/step_queue.h"

namespace linnet {
namespace {
std::vector<std::string> key_starts() {
  return mapped(config_keys(), [](const ConfigKey& key) { return std::string(key.name) + "="; });
}

struct TrainArguments : ConfigArguments {
  std::string folder, init, profile, rates;
  bool resume = false, detect_anomaly = false;
  int64_t ranks = 0, restarts = 0;
};

// Keeps nothing on disk.
int test_range(const TrainArguments& arguments) {
  constexpr int64_t kSteps = 100;
  const RateRange range = parse_rate_range(arguments.rates);
  const Config config = arguments.load();
  arguments.check_preset_files(config);
  const std::unique_ptr<TrainingTask> task = start_training_task(config, "");
  catch_stop_signals();
  print_text(rate_chart(test_rates(*task, range, kSteps)));
  default_stop_signals();
  return 0;
}

// A run folder used as configuration is also what --resume continues.
std::string default_folder(const TrainArguments& arguments) {
  if (arguments.resume && RunFolder(arguments.config).has_config()) return arguments.config;
  return "runs/" + std::filesystem::path(arguments.config).stem().string();
}

int train_as_rank(const TrainArguments& arguments, Communicator& world) {
  TrainRequest request{{}, arguments.folder, arguments.resume, arguments.init};
  run_on_all(world, [&] {
    request.config = arguments.load(arguments.resume);
    if (!arguments.resume && arguments.init.empty()) arguments.check_preset_files(request.config);
  });
  request.detect_anomaly = arguments.detect_anomaly;
  request.program = build_version();
  request.world = &world;
  if (!arguments.profile.empty()) request.profile = parse_profile_options(arguments.profile, "--profile");
  if (request.folder.empty()) request.folder = default_folder(arguments);
  run_training(request, make_training_task);
  return 0;
}

int train(const TrainArguments& arguments) {
  if (const auto torchrun = find_torchrun(); torchrun && torchrun->ranks > 1) {
    if (arguments.ranks > 0) fail_user("--ranks starts the ranks itself; torchrun has started this process already");
    // torchrun waits for all of its processes, and ends them if one fails.
    return torchrun->rank > 0 ? 0 : start_ranks(torchrun->ranks, static_cast<int>(arguments.restarts));
  }
  if (arguments.restarts > 0 && arguments.ranks == 0) fail_user("--restart goes with --ranks N");
  if (arguments.ranks > 0) return start_ranks(static_cast<int>(arguments.ranks), static_cast<int>(arguments.restarts));
  if (!arguments.rates.empty()) return test_range(arguments);
  return run_as_rank([&](Communicator& world) { return train_as_rank(arguments, world); });
}

struct SweepArguments : ConfigArguments {
  std::string search, out;
  int64_t runs = 0, seed = 1;
};

int sweep(const SweepArguments& arguments) {
  SweepRequest request{.choice = arguments, .axes = {}, .folder = arguments.out, .program = build_version()};
  std::erase_if(request.choice.settings, [&](const std::string& setting) {
    const std::optional<SweepAxis> axis = parse_sweep_axis(setting);
    if (axis) request.axes.push_back(*axis);
    return axis.has_value();
  });
  if (request.axes.empty()) {
    request.choice.load();  // reports unknown keys
    fail_user("no key has several values: write for example --set learning_rate=1e-5..1e-3 or --set dropout=0.1,0.2");
  }
  const bool listed = std::ranges::none_of(request.axes, [](const SweepAxis& axis) { return axis.values.empty(); });
  request.search = enum_value<SweepSearch>(arguments.search)
                       .value_or(listed && !arguments.runs ? SweepSearch::kGrid : SweepSearch::kRandom);
  request.runs = arguments.runs, request.seed = static_cast<uint64_t>(arguments.seed);
  if (request.folder.empty()) request.folder = "sweeps/" + std::filesystem::path(arguments.config).stem().string();
  const Sweep result = run_sweep(request, make_training_task);
  print("{}{}/sweep.json, {}/report.html\n", sweep_table(result), request.folder, request.folder);
  if (result.stopped) std::fprintf(stderr, "linnet: stopped; the same command goes on\n");
  return 0;
}

constexpr size_t kShownTexts = 10;

struct Score {
  double exact_match, worst_format;
};

// Evaluates the trained model on unseen dates in every format.
Score show_test(TranslationSession& session) {
  const Config& config = session.config;
  Corpus corpus = load_test_corpus(config);
  const EvaluationSet set(std::move(corpus.test), session.tokenizers, config.model.max_seq_len);
  SharedWork alone = SharedWork::alone();
  const auto translations = translate(session, set, set.dataset.size(), alone);
  std::map<int, std::pair<int, int>> right_and_all;
  int right = 0;
  for (size_t i = 0; i < translations.size(); ++i) {
    const bool good = is_exact_match(translations[i], set.text.target[i]);
    auto& [good_here, all] = right_and_all[corpus.test_formats[i]];
    right += good, good_here += good, ++all;
    if (i < kShownTexts)
      print("{:<40} {}{}\n", set.text.source[i], translations[i], good ? "" : ("   should be " + set.text.target[i]));
  }
  double worst = 1;
  for (const auto& [format, counts] : right_and_all)
    worst = std::min(worst, static_cast<double>(counts.first) / counts.second);
  return {static_cast<double>(right) / static_cast<double>(translations.size()), worst};
}

struct DemoArguments : ConfigArguments {
  std::string folder = "runs/demo";
  bool resume = false;
};

int demo(DemoArguments& arguments) {
  arguments.config = "dates";
  const TrainRequest request{arguments.load(), arguments.folder, arguments.resume, ""};
  Score score{};
  const TrainOutcome outcome = run_training(request, make_training_task, [&](TrainingTask& task) {
    score = show_test(dynamic_cast<TranslationSession&>(dynamic_cast<SessionTask&>(task).planned()));
  });
  if (outcome.stopped) return 0;
  print_json({{"task", "dates"}, {"exact_match", score.exact_match}, {"worst_format", score.worst_format},
      {"train_seconds", outcome.train_seconds}, {"peak_memory_mb", megabytes(peak_resident_bytes())},
      {"predicted_peak_mb", megabytes(outcome.predicted_peak)}});
  log_info("`echo \"May 1, 2031\" | linnet translate " + arguments.folder + "` asks it");
  return 0;
}

struct CheckArguments : ConfigArguments {
  bool json = false, replay = false;
};

void print_checks(const CheckLine& line) {
  print("{}  {:<28}  {}\n", line.verdict == Verdict::kFail ? "FAIL" : enum_name(line.verdict), line.name, line.figure);
  flush_output();
}

int replay(const CheckArguments& arguments) {
  if (arguments.json) fail_user("--json does not go with --replay: leave one of them out");
  if (!RunFolder(arguments.config).has_config())
    fail_user("'", arguments.config, "' is no run folder: --replay shows a step that a run has kept");
  const Config config = arguments.load(true);
  const std::unique_ptr<TrainingTask> task = start_training_task(config, arguments.config);
  print("{}\n", replay_anomaly(arguments.config, *task));
  return 0;
}

int check(const CheckArguments& arguments) {
  if (arguments.replay) return replay(arguments);
  TaskCheck task(arguments.load());
  const std::vector<CheckLine> lines =
      run_checks(task.subject(), arguments.json ? std::function<void(const CheckLine&)>{} : print_checks);
  const auto failed = std::ranges::count(lines, Verdict::kFail, &CheckLine::verdict);
  if (arguments.json) {
    Json json{{"failed", failed}, {"checks", Json::array()}};
    for (const CheckLine& line : lines)
      json["checks"].push_back({{"name", line.name}, {"verdict", enum_name(line.verdict)}, {"figure", line.figure}});
    print("{}\n", json.dump(1));
  }
  return failed > 0 ? 1 : 0;
}

struct ProfileArguments : ConfigArguments {
  int64_t steps_profiled = 5, depth = 4;
  bool json = false, each = false;
};

// Profiles steps of a run that is not kept.
ProfileSummary profile_run(const Config& config, int64_t active) {
  const std::unique_ptr<TrainingTask> task = start_training_task(config, "");
  StepQueue steps(task->trainer(), task->batches(), task->resident(), task->store());
  int64_t step = 0;
  return profiled(task->trainer(), active, [&] {
    const double rate = peak_learning_rate(config) / 100;
    steps.submit(std::span(&rate, 1), ++step);
    while (steps.waiting() > 0) steps.collect();
  });
}

// A name of both a preset and a workload means the workload, unless there is training data.
bool wants_workload(const ProfileArguments& arguments) {
  const std::vector<WorkloadRow> rows = workload_rows();
  return contains(rows, arguments.config, &WorkloadRow::name) && arguments.settings.empty() && arguments.data.empty() &&
         arguments.source.empty();
}

ProfileSummary profile_of(const ProfileArguments& arguments) {
  if (!wants_workload(arguments)) return profile_run(arguments.load(), arguments.steps_profiled);
  MeasureOptions options{.backend = &open_backend(arguments.device.empty() ? "cpu" : arguments.device)};
  options.threads = threads_or_all(arguments.threads);
  force_isa(arguments.isa.empty() ? "auto" : arguments.isa);
  return profile_layers(make_workload(arguments.config), options, arguments.steps_profiled);
}

int profile_command(const ProfileArguments& arguments) {
  const ProfileSummary summary = profile_of(arguments);
  if (arguments.json) return print_text(summary_json(summary)), 0;
  print("{}\n{}{}", summary_table(summary, 0), layer_table(summary, static_cast<int>(arguments.depth), arguments.each),
      worst_ratios(summary, 5));
  print_text(summary.machine.name);
  if (summary.machine.flops > 0)
    print(": peak {:.0f} GFLOP/s, memory {:.1f} GB/s", summary.machine.flops * 1e-9, summary.machine.bandwidth * 1e-9);
  print("\n");
  return 0;
}

struct EvalArguments : EvaluationRequest {
  std::vector<std::string> folders;
  std::string data_dir;
  DataConfig columns;  // names of the columns to read
  bool json = false;
};

const char* split_name(const EvalArguments& arguments) {
  if (!arguments.data.empty()) return "file";
  if (!arguments.source.empty()) return "files";
  return arguments.split == "valid" ? "valid" : "test";
}

void print_scores_json(const EvalArguments& arguments, const EvaluationAnswer& answer, double seconds) {
  Json json{{"run", arguments.folder}, {"split", split_name(arguments)}};
  for (const auto& [name, value] : answer.facts)
    std::visit([&, key = name](const auto& known) { json[key] = known; }, value);
  json["loss"] = answer.result.loss;
  for (const auto& [name, value] : answer.result.metrics)
    if (name == "words" || name == "tokens") json[name] = static_cast<int64_t>(value);
    else json[name] = value;
  if (answer.result.classes) json.update(answer.result.classes->json());
  json["seconds"] = seconds;
  print_json(json);
}

// Looks for the run's data in another folder, also by the names of files with absolute paths.
void move_data(Config& config, const std::string& folder) {
  if (config.data.data_dir.empty())
    for (std::string* file : data_files(config)) {
      const std::string name = std::filesystem::path(*file).filename().string();
      if (!name.empty() && file_exists(folder + "/" + name)) *file = name;
    }
  config.data.data_dir = folder;
}

int evaluate(EvalArguments& arguments) {
  const double began = now();
  arguments.folder = arguments.folders.front();
  arguments.others.assign(arguments.folders.begin() + 1, arguments.folders.end());
  Config config = evaluation_config(arguments.folder);
  if (!arguments.others.empty() && task_kind(config) != TaskKind::kTranslation)
    fail_user("several runs are evaluated together where they translate, and '", arguments.folder, "' does not");
  apply(arguments, config, arguments.folder);
  if (!arguments.data_dir.empty()) move_data(config, arguments.data_dir);
  for (const auto name : {&DataConfig::text_column, &DataConfig::pair_column, &DataConfig::label_column})
    if (const std::string& given = arguments.columns.*name; !given.empty()) config.data.*name = given;
  force_isa(config.train.isa);
  const EvaluationAnswer answer = task_actions(config).evaluate(arguments, config);
  // The loss of zero tokens is undefined, and JSON cannot represent NaN.
  if (!std::isfinite(answer.result.loss)) fail_user("the loss is not a number: the model's weights are broken");
  const double seconds = now() - began;
  if (arguments.json) return print_scores_json(arguments, answer, seconds), 0;
  print("{}  ({}{}{:.1f} s)\n", answer.line, answer.conditions, answer.conditions.empty() ? "" : ", ", seconds);
  if (answer.result.classes) print_text(answer.result.classes->text());
  return 0;
}
}  // namespace

std::vector<std::string> preset_names() { return mapped<std::string>(presets(), &Preset::name); }

void ConfigArguments::declare(Command& command) {
  command
      .take("config", config,
          "a TOML file, the name of a preset (see `linnet presets`), or a run folder for its configuration",
          {.required = true, .type = "FILE", .suggestions = preset_names()})
      .take("--set", settings, "change one key of the configuration: --set key=value",
          {.type = "KEY=VALUE", .suggestions = key_starts()})
      .take("--steps", steps, "short for --set max_steps=N --set max_epochs=0", {.type = "N"})
      .take("--epochs", epochs, "short for --set max_epochs=N", {.type = "N"})
      .take("--batch", batch, "short for --set batch_size=N", {.type = "N"})
      .take("--lr", learning_rate, "short for --set learning_rate=RATE", {.type = "RATE"})
      .take("--data", data,
          "what to train on: a file of source<TAB>target or text<TAB>label (or .csv, .jsonl), a text, a folder of "
          "texts or of images",
          {.type = "FILE"})
      .take_columns(text_column, pair_column, label_column)
      .take("--source", source, "training text, one sentence a line, plain or .gz", {.type = "FILE"})
      .take("--target", target, "its translation, line by line", {.type = "FILE"})
      .take("--memory", memory,
          "short for --set memory=SIZE: the most memory that training may take, such as 2GiB; layers are computed "
          "again until it is kept",
          {.type = "SIZE"})
      .take_threads(threads)
      .take_device(device, "cpu, cuda or cuda:N")
      .take_isa(isa);
}

Config ConfigArguments::load(bool resume) const {
  Config loaded = ConfigChoice::load(resume);
  force_isa(loaded.train.isa);
  return loaded;
}

void add_train_command(Command& linnet) {
  auto [command, arguments] = linnet.subcommand("train", "train a model", train);
  arguments.declare(command);
  command
      .take("--run", arguments.folder,
          "the run folder (default: runs/ and the name of the configuration; with --resume the configuration itself "
          "if it is a run folder)",
          {.type = "DIR"})
      .flag("--resume", arguments.resume, "go on with an existing run folder")
      .take("--init", arguments.init, "start from the weights of another run", {.type = "RUN"})
      .take("--profile", arguments.profile,
          "write traces of some steps into the run folder, for example wait=1,warmup=1,active=3,repeat=2",
          {.type = "STEPS"})
      .take("--lr-range", arguments.rates,
          "instead of training, 100 steps with rising learning rates, for example 1e-6:1: a chart and a suggestion",
          {.type = "FROM:TO"})
      .take("--ranks", arguments.ranks,
          "train in N processes on this machine, started by mpirun; see docs/many_processes.md",
          {.type = "N", .least = 1, .most = 4096})
      .take("--parallel", arguments.parallel,
          "with --ranks: how they share the work, for example pipeline=2 or data=2,tensor=2; see "
          "docs/many_processes.md",
          {.type = "LAYOUT"})
      .take("--restart", arguments.restarts,
          "with --ranks: when a rank dies, go on from the last checkpoint, at most K times",
          {.type = "K", .least = 0, .most = 1e6})
      .flag("--detect-anomaly", arguments.detect_anomaly,
          "keep the step when a loss or gradient is not finite, for `linnet check RUN --replay`");
}

void add_sweep_command(Command& linnet) {
  auto [command, arguments] = linnet.subcommand("sweep",
      "train many runs with other values of some keys: --set dropout=0.1,0.2 lists values, --set "
      "learning_rate=1e-5..1e-3 is a range, from which values are drawn evenly, by their logarithm "
      "where both ends are above 0 and 10 times apart or more; 1e-5..1e-3:4 lists 4 values of it",
      sweep);
  arguments.declare(command);
  command
      .take("--runs", arguments.runs, "how many runs (default 12; of a grid all combinations)",
          {.type = "N", .least = 1, .most = 999})
      .take("--search", arguments.search,
          "grid: all combinations of listed values (the default where all are listed and --runs is not given); "
          "random; or halving: random, and after 1/9 and 1/3 of the steps only the best third goes on",
          {.choices = {"grid", "random", "halving"}})
      .take("--seed", arguments.seed, "of the values that are drawn; the runs' own seed is the key seed",
          {.type = "N", .least = 0, .most = 9e15, .show_default = true})
      .take("--out", arguments.out,
          "the folder of the runs (default: sweeps/ and the name of the configuration); a sweep that is there "
          "already goes on: finished runs stay, others are resumed",
          {.type = "DIR"});
}

void add_demo_command(Command& linnet) {
  auto [command, arguments] = linnet.subcommand("demo", "train the dates preset and show what it learned", demo);
  command.take("--run", arguments.folder, "the run folder", {.type = "DIR"})
      .take("--set", arguments.settings, "change one key of the preset", {.type = "KEY=VALUE"})
      .flag("--resume", arguments.resume, "go on with an existing run folder");
}

void add_check_command(Command& linnet) {
  auto [command, arguments] =
      linnet.subcommand("check", "whether a model is sane, before it is trained: exit code 1 if a check fails", check);
  arguments.declare(command);
  command.flag("--replay", arguments.replay, "of a run: show the step again that --detect-anomaly has kept")
      .flag("--json", arguments.json, "one JSON object instead of lines");
}

void add_profile_command(Command& linnet) {
  auto [command, arguments] = linnet.subcommand(
      "profile", "where the time of a training step goes, layer by layer, forward and backward", profile_command);
  arguments.declare(command);
  command
      .take("--profiled", arguments.steps_profiled, "steps that are measured, after two others",
          {.least = 1, .most = 1000, .show_default = true})
      .take("--depth", arguments.depth, "names of a module's path that get a line of their own",
          {.least = 0, .most = 20, .show_default = true})
      .flag("--each", arguments.each, "a line for each of several equal layers, not one for all")
      .flag("--json", arguments.json, "the summary by op as JSON");
}

void add_eval_command(Command& linnet) {
  auto [command, arguments] =
      linnet.subcommand("eval", "how good a model is: loss with BLEU, perplexity or accuracy", evaluate);
  command
      .take("run", arguments.folders,
          "the run folder, or a model folder in the layout of Hugging Face; several of translation are evaluated as "
          "one",
          {.required = true})
      .take("--split", arguments.split, "test (default) or valid, as the run's configuration names them",
          {.choices = {"test", "valid"}})
      .take("--source", arguments.source, "or a text of your own ...", {.type = "FILE"})
      .take("--target", arguments.target, "... and its translation", {.type = "FILE"})
      .take("--data", arguments.data,
          "of a language model: a text of your own (plain, .jsonl or .bin); of a classifier or of translation: a "
          ".tsv; of images: a folder",
          {.type = "FILE"})
      .take_columns(arguments.columns.text_column, arguments.columns.pair_column, arguments.columns.label_column)
      .take(
          "--data-dir", arguments.data_dir, "where the data lies now (default: where the run had it)", {.type = "DIR"})
      .take("--beam", arguments.beams, "beam size (default: the run's)", {.least = 1, .most = 1024})
      .flag("--json", arguments.json, "one JSON object instead of a line for people")
      .take_load(arguments)
      .take_languages(arguments.languages.source, arguments.languages.target);
}
}  // namespace linnet
