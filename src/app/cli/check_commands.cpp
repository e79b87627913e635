// `linnet check` and `linnet profile`.
#include <algorithm>
#include "app/bench/measure.h"
#include "app/cli/commands.h"
#include "app/cli/print-inl.h"
#include "base/thread_pool.h"
#include "engine/exec/backend.h"
#include "engine/kernels/processor.h"
#include "tasks/check_subject.h"
#include "tasks/task_table.h"
#include "training/run/run_folder.h"
#include "training/run/run_reporter.h"
#include "training/run/trainer_options.h"
#include "training/trainer/step_queue.h"

namespace linnet {
namespace {
struct CheckArguments : ConfigArguments {
  bool json = false, replay = false;
};

const char* verdict_name(Verdict verdict) {
  return verdict == Verdict::kPass ? "pass" : verdict == Verdict::kFail ? "FAIL" : "skip";
}

void print_checks(const CheckLine& line) {
  print("{}  {:<28}  {}\n", verdict_name(line.verdict), line.name, line.figure);
  flush_output();
}

int replay(const CheckArguments& arguments) {
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
      json["checks"].push_back({{"name", line.name},
          {"verdict", line.verdict == Verdict::kFail ? "fail" : verdict_name(line.verdict)}, {"figure", line.figure}});
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
  return std::ranges::count(rows, arguments.config, &WorkloadRow::name) > 0 && arguments.settings.empty() &&
         arguments.data.empty() && arguments.source.empty();
}

ProfileSummary profile_of(const ProfileArguments& arguments) {
  if (!wants_workload(arguments)) return profile_run(arguments.load(), arguments.steps_profiled);
  MeasureOptions options{.backend = &open_backend(arguments.device.empty() ? "cpu" : arguments.device)};
  options.threads = arguments.threads > 0 ? arguments.threads : available_threads();
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
}  // namespace

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
}  // namespace linnet
