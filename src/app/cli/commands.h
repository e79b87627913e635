// One function per command: it declares its arguments and what to run with them.
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

void add_train_command(Command& linnet);
void add_check_command(Command& linnet);
void add_profile_command(Command& linnet);
void add_report_command(Command& linnet);
void add_inspect_command(Command& linnet);
void add_runs_command(Command& linnet);
void add_average_command(Command& linnet);
void add_eval_command(Command& linnet);
void add_predict_command(Command& linnet);
void add_score_command(Command& linnet);
void add_translate_command(Command& linnet);
void add_generate_command(Command& linnet);
void add_serve_command(Command& linnet);
void add_run_command(Command& linnet);
void add_pack_command(Command& linnet);
void add_quantize_command(Command& linnet);
void add_export_command(Command& linnet);
void add_import_command(Command& linnet);
void add_onnx_command(Command& linnet);
void add_plan_command(Command& linnet);
void add_presets_command(Command& linnet);
void add_info_command(Command& linnet);
void add_convert_command(Command& linnet);
void add_embed_command(Command& linnet);
void add_demo_command(Command& linnet);
void add_bench_command(Command& linnet);
void add_tokenizer_command(Command& linnet);

}  // namespace linnet
