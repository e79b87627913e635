#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "cli/commands.h"

namespace linnet {

void add_presets_command(CLI::App& app, Action& action) {
  auto name = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("presets", "list the presets, or print one as a commented configuration");
  command->add_option("name", *name);
  command->callback([name, &action] {
    action = [name] {
      if (name->empty()) {
        for (const Preset& preset : presets())
          std::printf("%-12s %s\n", preset.name.c_str(), preset.description.c_str());
        return 0;
      }
      for (const Preset& preset : presets())
        if (preset.name == *name) {
          std::printf("%s", to_toml(load_config(*name), true).c_str());
          return 0;
        }
      fail_user("there is no preset '" + *name + "'; `linnet presets` lists them");
    };
  });
}

}  // namespace linnet
