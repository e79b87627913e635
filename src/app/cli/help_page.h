// What `linnet help COMMAND` and `linnet COMMAND --help` print.
#pragma once
#include <string>
#include <vector>

#include "app/cli/command_description.h"

namespace linnet {

// `path`: the names that lead from `root` to the command. It must be one of root's.
std::string help_page(const CommandDescription& root, const std::vector<std::string>& path);

// "linnet tokenizer train [OPTIONS] MODEL FILES..."
std::string usage_line(const CommandDescription& root, const std::vector<std::string>& path);

// The name of an argument by its position as help writes it: "model" is MODEL.
std::string placeholder(const ArgumentDescription& argument);

}  // namespace linnet
