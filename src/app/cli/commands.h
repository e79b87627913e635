// The program's commands, and arguments that several share.
#pragma once
#include "app/cli/command_line.h"
#include "training/run/config_choice.h"

namespace linnet {
struct ConfigArguments : ConfigChoice {
  void declare(Command& command);
  // Also selects the configuration's instruction set for the command.
  Config load(bool resume = false) const;
};

std::vector<std::string> preset_names();

// All commands in the order of the help page. Each has a function add_NAME_command, which declares its arguments and
// action (docs/add_a_command.md).
// clang-format off
#define LINNET_COMMANDS(COMMAND) \
  COMMAND(train) COMMAND(sweep) COMMAND(eval) COMMAND(predict) COMMAND(score) COMMAND(translate) COMMAND(generate) COMMAND(chat) \
  COMMAND(serve) COMMAND(run) COMMAND(pack) COMMAND(quantize) COMMAND(export) COMMAND(import) COMMAND(onnx) COMMAND(plan) \
  COMMAND(check) COMMAND(profile) COMMAND(report) COMMAND(inspect) COMMAND(runs) COMMAND(average) COMMAND(presets) \
  COMMAND(info) COMMAND(convert) COMMAND(embed) COMMAND(demo) COMMAND(bench) COMMAND(tokenizer)
// clang-format on

#define LINNET_DECLARE(NAME) void add_##NAME##_command(Command& linnet);
LINNET_COMMANDS(LINNET_DECLARE)
#undef LINNET_DECLARE
}  // namespace linnet
