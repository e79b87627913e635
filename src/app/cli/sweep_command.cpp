#include <cstdio>
#include <filesystem>
#include <memory>
#include "app/cli/build_version.h"
#include "app/cli/commands.h"
#include "base/error.h"
#include "tasks/task_table.h"
#include "training/run/sweep.h"

namespace linnet {
namespace {

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
    request.choice.load();  // a key that does not exist has no values either
    fail_user("no key has several values: write for example --set learning_rate=1e-5..1e-3 or --set dropout=0.1,0.2");
  }
  const bool listed = std::ranges::none_of(request.axes, [](const SweepAxis& axis) { return axis.values.empty(); });
  request.search = arguments.search == "halving"                               ? SweepSearch::kHalving
                   : arguments.search == "random"                              ? SweepSearch::kRandom
                   : arguments.search == "grid" || (listed && !arguments.runs) ? SweepSearch::kGrid
                                                                               : SweepSearch::kRandom;
  request.runs = arguments.runs, request.seed = static_cast<uint64_t>(arguments.seed);
  if (request.folder.empty()) request.folder = "sweeps/" + std::filesystem::path(arguments.config).stem().string();
  const Sweep result = run_sweep(request, make_training_task);
  std::printf("%s%s/sweep.json, %s/report.html\n", sweep_table(result).c_str(), request.folder.c_str(),
              request.folder.c_str());
  if (result.stopped) std::fprintf(stderr, "linnet: stopped; the same command goes on\n");
  return 0;
}

}  // namespace

void add_sweep_command(Command& linnet) {
  auto arguments = std::make_shared<SweepArguments>();
  Command command = linnet.subcommand("sweep",
                                      "train many runs with other values of some keys: --set dropout=0.1,0.2 lists "
                                      "values, --set learning_rate=1e-5..1e-3 "
                                      "is a range, from which values are drawn evenly, by their logarithm where both "
                                      "ends are above 0 and 10 times apart "
                                      "or more; 1e-5..1e-3:4 lists 4 values of it");
  arguments->declare(command);
  command
      .take("--runs", arguments->runs, "how many runs (default 12; of a grid all combinations)",
            {.type = "N", .least = 1, .most = 999})
      .take(
          "--search", arguments->search,
          "grid: all combinations of listed values (the default where all are listed and --runs is not given); random; "
          "or halving: random, and after 1/9 and 1/3 of the steps only the best third goes on",
          {.choices = {"grid", "random", "halving"}})
      .take("--seed", arguments->seed, "of the values that are drawn; the runs' own seed is the key seed",
            {.type = "N", .least = 0, .most = 9e15, .show_default = true})
      .take(
          "--out", arguments->out,
          "the folder of the runs (default: sweeps/ and the name of the configuration); a sweep that is there already "
          "goes on: finished runs stay, others are resumed",
          {.type = "DIR"})
      .does([arguments] { return sweep(*arguments); });
}

}  // namespace linnet
