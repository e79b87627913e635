// The commands about the commands: help, man and completion. All three are made from what the commands declared.
#pragma once
#include "app/cli/command_line.h"

namespace linnet {

// Call after all other commands are declared. `described` must outlive the parsing and the action.
void add_reference_commands(Command& linnet, const CommandDescription& described);

}  // namespace linnet
