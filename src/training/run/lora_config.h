// What a configuration says of adapters.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "models/families/lora.h"

namespace linnet {

// [lora]; empty: no adapters.
std::optional<LoraOptions> lora_options(const Config& config);

// "a, b" as {"a", "b"}; blanks and empty names are left out.
std::vector<std::string> split_names(const std::string& names);

}  // namespace linnet
