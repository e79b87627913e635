#include <cstdio>
#include <memory>
#include "app/cli/commands.h"
#include "base/error.h"

namespace linnet {
namespace {

int print_presets(const std::string& name) {
  if (name.empty()) {
    for (const Preset& preset : presets()) std::printf("%-12s %s\n", preset.name, preset.description);
    return 0;
  }
  if (!is_preset(name)) fail_user("there is no preset '" + name + "'; `linnet presets` lists them");
  std::printf("%s", to_toml(load_config(name), true).c_str());
  return 0;
}

}  // namespace

void add_presets_command(Command& linnet) {
  auto name = std::make_shared<std::string>();
  std::vector<std::string> names;
  for (const Preset& preset : presets()) names.emplace_back(preset.name);
  linnet.subcommand("presets", "list the presets, or print one as a commented configuration")
      .take("name", *name, "of a preset", {.suggestions = names})
      .does([name] { return print_presets(*name); });
}

}  // namespace linnet
