#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "app/language_model.h"
#include "app/pretrained_run.h"
#include "app/run_folder.h"
#include "app/translation_model.h"
#include "base/error.h"
#include "base/files.h"
#include "cli/commands.h"

namespace linnet {

void add_export_command(CLI::App& app, Action& action) {
  struct Arguments {
    std::string run, out;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("export", "write a run's model as a folder that other programs load (Hugging Face's layout)");
  command->add_option("run", arguments->run, "the run folder")->required();
  command->add_option("--out", arguments->out, "the folder to write")->required()->type_name("DIR");
  command->callback([arguments, &action] {
    action = [arguments] {
      if (file_exists(arguments->out + "/config.toml"))
        fail_user("--out '" + arguments->out + "' is a run folder; name another one");
      const RunFolder run(arguments->run);
      const std::string task = run.has_config() ? run.load_config().data.task : "";
      if (task == "classification" || task == "masked_language")
        export_pretrained_run(arguments->run, arguments->out);
      else if (task == "text" || task == "dates" || task == "random")
        export_translation_run(arguments->run, arguments->out);
      else
        export_language_model(open_language_model(arguments->run), arguments->out);
      return 0;
    };
  });
}

}  // namespace linnet
