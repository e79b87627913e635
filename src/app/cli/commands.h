// The commands of the program, and the arguments that several of them share.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "app/cli/command_line.h"
#include "config/config.h"

namespace linnet {

// Arguments that several commands share.
struct ConfigArguments {
  std::string config;                                              // a file or the name of a preset
  std::vector<std::string> settings;                               // key=value
  std::string data, source, target;                                // --data, --source, --target
  std::optional<std::string> steps, epochs, batch, learning_rate;  // short forms of keys, as they were written
  int threads = 0;
  std::string isa, device, memory;
  std::string parallel;  // --parallel, of commands that take --ranks

  void declare(Command& command);
  // Reads, applies the settings, validates, and selects the instruction set.
  Config load(bool resume = false) const;
};

// All commands, in the order of the help page: each is a line here and a function add_NAME_command in a file of its own,
// which declares its arguments and what to run with them (docs/add_a_command.md).
#define LINNET_COMMANDS(COMMAND) \
  COMMAND(train) COMMAND(eval) COMMAND(predict) COMMAND(score) COMMAND(translate) COMMAND(generate) COMMAND(serve) \
  COMMAND(run) COMMAND(pack) COMMAND(quantize) COMMAND(export) COMMAND(import) COMMAND(onnx) COMMAND(plan) \
  COMMAND(check) COMMAND(profile) COMMAND(report) COMMAND(inspect) COMMAND(runs) COMMAND(average) COMMAND(presets) \
  COMMAND(info) COMMAND(convert) COMMAND(embed) COMMAND(demo) COMMAND(bench) COMMAND(tokenizer)

#define LINNET_DECLARE(NAME) void add_##NAME##_command(Command& linnet);
LINNET_COMMANDS(LINNET_DECLARE)
#undef LINNET_DECLARE

}  // namespace linnet
