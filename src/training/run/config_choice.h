// Which configuration a user asks for: one to start from, and what of it is changed.
#pragma once
#include "config/config.h"

namespace linnet {

struct ConfigChoice {
  std::string config;                 // a file, the name of a preset, or a run folder
  std::vector<std::string> settings;  // key=value
  std::string data, source, target;   // --data, --source, --target
  // Short forms of keys, as they were written.
  std::optional<std::string> steps, epochs, batch, learning_rate, text_column, pair_column, label_column;
  int threads = 0;
  std::string isa, device, memory;
  std::string parallel;  // --parallel, of commands that take --ranks

  // Reads, applies the settings, and validates.
  Config load(bool resume = false) const;
  // User error where a new run would read what only the preset names, and it is not there. `loaded`: by load().
  void check_preset_files(const Config& loaded) const;
};

}  // namespace linnet
