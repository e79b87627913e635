#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "app/training_run.h"
#include "cli/commands.h"

namespace linnet {

void add_train_command(CLI::App& app, Action& action) {
  struct Arguments : ConfigArguments {
    std::string folder, init;
    bool resume = false;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("train", "train a model");
  arguments->declare(*command, true);
  command->add_option("--run", arguments->folder, "the run folder (default: runs/ and the name of the configuration)")
      ->type_name("DIR");
  command->add_flag("--resume", arguments->resume, "go on with an existing run folder");
  command->add_option("--init", arguments->init, "start from the weights of another run")->type_name("RUN");
  command->callback([arguments, &action] {
    action = [arguments] {
      TrainRequest request{arguments->load(), arguments->folder, arguments->resume, arguments->init};
      if (request.folder.empty()) request.folder = "runs/" + std::filesystem::path(arguments->config).stem().string();
      run_training(request);
      return 0;
    };
  });
}

}  // namespace linnet
