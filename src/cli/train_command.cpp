#include <filesystem>
#include <memory>

#include "cli/build_version.h"
#include "cli/commands.h"
#include "run/training_run.h"
#include "tasks/task_table.h"

namespace linnet {
namespace {

struct Arguments : ConfigArguments {
  std::string folder, init, profile;
  bool resume = false;
};

int train(const Arguments& arguments) {
  TrainRequest request{arguments.load(arguments.resume), arguments.folder, arguments.resume, arguments.init};
  request.program = build_version();
  if (!arguments.profile.empty()) request.profile = parse_profile_options(arguments.profile, "--profile");
  if (request.folder.empty()) request.folder = "runs/" + std::filesystem::path(arguments.config).stem().string();
  run_training(request, make_training_task);
  return 0;
}

}  // namespace

void add_train_command(Command& linnet) {
  auto arguments = std::make_shared<Arguments>();
  Command command = linnet.subcommand("train", "train a model");
  arguments->declare(command);
  command
      .take("--run", arguments->folder, "the run folder (default: runs/ and the name of the configuration)",
            {.type = "DIR"})
      .flag("--resume", arguments->resume, "go on with an existing run folder")
      .take("--init", arguments->init, "start from the weights of another run", {.type = "RUN"})
      .take("--profile", arguments->profile,
            "write traces of some steps into the run folder, for example wait=1,warmup=1,active=3,repeat=2",
            {.type = "STEPS"})
      .does([arguments] { return train(*arguments); });
}

}  // namespace linnet
