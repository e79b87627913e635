#include "config/presets.h"

#include "config/config.h"

namespace linnet {

const PresetText* find_preset(std::string_view name) {
  for (const PresetText& preset : preset_texts())
    if (name == preset.name) return &preset;
  return nullptr;
}

bool is_preset(const std::string& name) { return find_preset(name) != nullptr; }

std::vector<Preset> presets() {
  std::vector<Preset> result;
  for (const PresetText& preset : preset_texts()) result.push_back({preset.name, preset.description});
  return result;
}

}  // namespace linnet
