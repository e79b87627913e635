// One function per command: it declares its arguments and what to run with them.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "config/config.h"

namespace CLI {
class App;
}

namespace linnet {

// Arguments that several commands share.
struct ConfigArguments {
  std::string config;                 // a file or the name of a preset
  std::vector<std::string> settings;  // key=value
  std::string source, target;         // --source, --target
  int threads = 0;
  std::string isa, device;

  void declare(CLI::App& command, bool data_files);
  Config load() const;  // reads, applies the settings, validates, and selects the instruction set
};

// What the chosen command does; returns the exit code.
using Action = std::function<int()>;

void add_train_command(CLI::App& app, Action& action);
void add_eval_command(CLI::App& app, Action& action);
void add_translate_command(CLI::App& app, Action& action);
void add_generate_command(CLI::App& app, Action& action);
void add_export_command(CLI::App& app, Action& action);
void add_plan_command(CLI::App& app, Action& action);
void add_presets_command(CLI::App& app, Action& action);
void add_info_command(CLI::App& app, Action& action);
void add_convert_command(CLI::App& app, Action& action);
void add_embed_command(CLI::App& app, Action& action);
void add_demo_command(CLI::App& app, Action& action);
void add_bench_command(CLI::App& app, Action& action);
void add_tokenizer_command(CLI::App& app, Action& action);

}  // namespace linnet
