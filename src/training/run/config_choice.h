// The configuration a user asks for: a base and changes to it.
#pragma once
#include "config/config.h"

namespace linnet {
struct ConfigChoice {
  std::string config;                 // a file, a preset, or a run folder
  std::vector<std::string> settings;  // key=value
  std::string data, source, target;   // --data, --source, --target
  std::string valid, test;            // Python's valid= and test=, for the keys that the task has
  // Short options as written.
  std::optional<std::string> steps, epochs, batch, learning_rate, text_column, pair_column, label_column;
  int threads = 0;
  std::string isa, device, memory;
  std::string parallel;  // --parallel, of commands that take --ranks

  Config load(bool resume = false) const;
  // User error if a new run needs a file that only the preset names and that does not exist. `loaded`: from load().
  void check_preset_files(const Config& loaded) const;
};
}  // namespace linnet
