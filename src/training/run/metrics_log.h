// metrics.jsonl: what was measured, one JSON object a line.
#pragma once
#include <string>
#include <string_view>

#include "base/files.h"

namespace linnet {

struct MetricsLine {
  int64_t step;
  std::string_view split;  // "train", "valid"
  double loss, learning_rate, grad_norm, speed, seconds, memory_mb;
  const char* items = "tokens";  // what speed counts: the field is "tokens_per_second"
  std::string_view metric = {};  // "bleu" or "exact_match" with its value, for evaluations
  double metric_value = 0;
  double loss_scale = 0;  // above 0: in a field, and the steps skipped so far
  int64_t skipped_steps = 0;
  std::string_view weights = {};  // what was evaluated, of a run with a moving average: "average" or "trained"
};

// The length of the prefix of a file of such lines that belongs to steps up to `last_step`, without what a crash left
// half written. `keep_evaluation`: evaluations of the last step are part of it.
uint64_t bytes_up_to_step(const std::string& path, int64_t last_step, bool keep_evaluation);

class MetricsLog {
 public:
  // Keeps the lines of steps up to `last_step` and drops what a crash left after them, a half-written line included.
  MetricsLog(const std::string& path, int64_t last_step, bool keep_evaluation_of_last_step);

  // Numbers are printed so that they read back exactly. Allocates nothing once a line of this length was written.
  void write(const MetricsLine& line);
  void sync() { file_.sync(); }

 private:
  AppendFile file_;
};

}  // namespace linnet
