// Shell completion, generated from what the commands declared.
#pragma once
#include <string>

#include "app/cli/command_description.h"

namespace linnet {

// `shell`: bash, zsh or fish.
std::string completion_script(const CommandDescription& root, const std::string& shell);

}  // namespace linnet
