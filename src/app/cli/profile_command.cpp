#include <algorithm>
#include <cstdio>
#include <memory>
#include "app/bench/measure.h"
#include "app/cli/commands.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "engine/exec/backend.h"
#include "engine/kernels/isa.h"
#include "engine/profile/profile.h"
#include "tasks/task_table.h"
#include "training/run/trainer_options.h"
#include "training/trainer/step_queue.h"

namespace linnet {
namespace {

struct ProfileArguments : ConfigArguments {
  int64_t steps_profiled = 5, depth = 4;
  bool json = false, each = false;
};

// Steps of a run, which is not kept.
ProfileSummary profile_run(const Config& config, int64_t active) {
  const std::unique_ptr<TrainingTask> task = start_training_task(config, "");
  Trainer& trainer = task->trainer();
  trainer.profile({.wait = 0, .warmup = 2, .active = active});
  ProfileSummary found;
  trainer.profiler()->write_files = false;
  trainer.profiler()->on_summary = [&](const ProfileSummary& summary) { found = summary; };
  StepQueue steps(trainer, task->batches(), task->resident(), task->store());
  for (int64_t step = 1; !trainer.profiler()->is_done(); ++step) {
    const double rate = peak_learning_rate(config) / 100;
    steps.submit(std::span(&rate, 1), step);
    while (steps.waiting() > 0) steps.collect();
  }
  return found;
}

bool is_workload(const std::string& name) {
  const std::vector<WorkloadRow> rows = workload_rows();
  return std::ranges::find(rows, name, &WorkloadRow::name) != rows.end();
}

// A preset's name that is a workload's, too, means the latter unless there is something to train on.
bool wants_workload(const ProfileArguments& arguments) {
  return is_workload(arguments.config) && arguments.settings.empty() && arguments.data.empty() &&
         arguments.source.empty();
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
  if (arguments.json) {
    std::printf("%s", summary_json(summary).c_str());
    return 0;
  }
  std::printf("%s\n%s%s", summary_table(summary, 0).c_str(),
              layer_table(summary, static_cast<int>(arguments.depth), arguments.each).c_str(),
              worst_ratios(summary, 5).c_str());
  std::printf("%s", summary.machine.name.c_str());
  if (summary.machine.flops > 0)
    std::printf(": peak %.0f GFLOP/s, memory %.1f GB/s", summary.machine.flops * 1e-9,
                summary.machine.bandwidth * 1e-9);
  std::printf("\n");
  return 0;
}

}  // namespace

void add_profile_command(Command& linnet) {
  auto arguments = std::make_shared<ProfileArguments>();
  Command command =
      linnet.subcommand("profile", "where the time of a training step goes, layer by layer, forward and backward");
  arguments->declare(command);
  command
      .take("--profiled", arguments->steps_profiled, "steps that are measured, after two others",
            {.least = 1, .most = 1000, .show_default = true})
      .take("--depth", arguments->depth, "names of a module's path that get a line of their own",
            {.least = 0, .most = 20, .show_default = true})
      .flag("--each", arguments->each, "a line for each of several equal layers, not one for all")
      .flag("--json", arguments->json, "the summary by op as JSON")
      .does([arguments] { return profile_command(*arguments); });
}

}  // namespace linnet
