// metrics.jsonl: what was measured, one JSON object a line.
#pragma once
#include <string>

#include "base/files.h"

namespace linnet {

struct MetricsLine {
  int64_t step;
  std::string split;  // "train", "valid"
  double loss, learning_rate, grad_norm, tokens_per_second, seconds, memory_mb;
  std::string metric = {};  // "bleu" or "exact_match" with its value, for evaluations
  double metric_value = 0;
};

class MetricsLog {
 public:
  // Keeps the lines of steps up to `last_step` and drops what a crash left after them, a half-written line included.
  MetricsLog(const std::string& path, int64_t last_step, bool keep_evaluation_of_last_step);

  void write(const MetricsLine& line);  // numbers are printed so that they read back exactly
  void sync() { file_.sync(); }

 private:
  AppendFile file_;
};

}  // namespace linnet
