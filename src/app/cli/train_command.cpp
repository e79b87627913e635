#include <cstdio>
#include <filesystem>
#include <memory>
#include "app/cli/build_version.h"
#include "app/cli/commands.h"
#include "app/cli/rank_start.h"
#include "base/error.h"
#include "base/signals.h"
#include "distributed/comm/agreement.h"
#include "distributed/comm/world.h"
#include "tasks/task_table.h"
#include "training/run/rate_range.h"
#include "training/run/run_folder.h"
#include "training/run/training_run.h"

namespace linnet {
namespace {

struct TrainArguments : ConfigArguments {
  std::string folder, init, profile, rates;
  bool resume = false, detect_anomaly = false;
  int64_t ranks = 0, restarts = 0;
};

// Nothing of it is kept.
int test_range(const TrainArguments& arguments) {
  constexpr int64_t kSteps = 100;
  const RateRange range = parse_rate_range(arguments.rates);
  const Config config = arguments.load();
  arguments.check_preset_files(config);
  const std::unique_ptr<TrainingTask> task = start_training_task(config, "");
  catch_stop_signals();
  std::printf("%s", rate_chart(test_rates(*task, range, kSteps)).c_str());
  default_stop_signals();
  return 0;
}

// A run folder that stands for its configuration is also what --resume goes on with.
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
    // torchrun waits for all of its processes, and ends them when one has failed.
    return torchrun->rank > 0 ? 0 : start_ranks(torchrun->ranks, static_cast<int>(arguments.restarts));
  }
  if (arguments.restarts > 0 && arguments.ranks == 0) fail_user("--restart goes with --ranks N");
  if (arguments.ranks > 0) return start_ranks(static_cast<int>(arguments.ranks), static_cast<int>(arguments.restarts));
  if (!arguments.rates.empty()) return test_range(arguments);
  return run_as_rank([&](Communicator& world) { return train_as_rank(arguments, world); });
}

}  // namespace

void add_train_command(Command& linnet) {
  auto arguments = std::make_shared<TrainArguments>();
  Command command = linnet.subcommand("train", "train a model");
  arguments->declare(command);
  command
      .take("--run", arguments->folder,
            "the run folder (default: runs/ and the name of the configuration; with --resume the configuration itself "
            "if it "
            "is a run folder)",
            {.type = "DIR"})
      .flag("--resume", arguments->resume, "go on with an existing run folder")
      .take("--init", arguments->init, "start from the weights of another run", {.type = "RUN"})
      .take("--profile", arguments->profile,
            "write traces of some steps into the run folder, for example wait=1,warmup=1,active=3,repeat=2",
            {.type = "STEPS"})
      .take("--lr-range", arguments->rates,
            "instead of training, 100 steps with rising learning rates, for example 1e-6:1: a chart and a suggestion",
            {.type = "FROM:TO"})
      .take("--ranks", arguments->ranks,
            "train in N processes on this machine, started by mpirun; see docs/many_processes.md",
            {.type = "N", .least = 1, .most = 4096})
      .take("--parallel", arguments->parallel,
            "with --ranks: how they share the work, for example pipeline=2 or data=2,tensor=2; see "
            "docs/many_processes.md",
            {.type = "LAYOUT"})
      .take("--restart", arguments->restarts,
            "with --ranks: when a rank dies, go on from the last checkpoint, at most K times",
            {.type = "K", .least = 0, .most = 1e6})
      .flag("--detect-anomaly", arguments->detect_anomaly,
            "keep the step when a loss or gradient is not finite, for `linnet check RUN --replay`")
      .does([arguments] { return train(*arguments); });
}

}  // namespace linnet
