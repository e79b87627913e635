// The configurations that come with the program, as TOML.
#pragma once
#include <span>
#include <string_view>

namespace linnet {

struct PresetText {
  const char* name;
  const char* description;
  const char* toml;
};

std::span<const PresetText> preset_texts();
const PresetText* find_preset(std::string_view name);  // null when there is none

}  // namespace linnet
