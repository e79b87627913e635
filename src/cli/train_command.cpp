#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "run/training_run.h"
#include "tasks/task_table.h"

namespace linnet {
namespace {

struct Arguments : ConfigArguments {
  std::string folder, init;
  bool resume = false;
};

int train(const Arguments& arguments) {
  TrainRequest request{arguments.load(arguments.resume), arguments.folder, arguments.resume, arguments.init};
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
      .does([arguments] { return train(*arguments); });
}

}  // namespace linnet
