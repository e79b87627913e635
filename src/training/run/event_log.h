// What a run writes for TensorBoard (`tensorboard = true`): the figures of metrics.jsonl under the tags that its users
// know, and with every evaluation histograms of weights and gradients and the samples.
//
//   train/loss, train/learning_rate, train/grad_norm, train/tokens_per_second, train/memory_mb
//   eval/loss, eval/bleu (or what the metric is), eval/tokens_per_second
//   weights/MODULE, gradients/MODULE    for each module that has parameters of its own
//   samples
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include "base/files.h"
#include "formats/event_file.h"
#include "training/trainer/trainer.h"

namespace linnet {

// metrics.jsonl: what was measured, one JSON object a line.

struct MetricsLine {
  int64_t step;
  std::string_view split;  // "train", "valid"
  double loss, learning_rate, grad_norm, speed, seconds, memory_mb;
  const char* items = "tokens";                                   // what speed counts: the field is "tokens_per_second"
  std::vector<std::pair<std::string_view, double>> metrics = {};  // "bleu" and its value, for evaluations
  double loss_scale = 0;                                          // above 0: in a field, and the steps skipped so far
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

class EventLog {
 public:
  // `last_step`: of the checkpoint that the run goes on from; 0 for a new run.
  EventLog(const std::string& folder, int64_t last_step) : file_(folder, last_step + 1) {}

  void write(const MetricsLine& line);
  // Counts the gradient of the step that the trainer ran last, which was of this shape and had so many tokens; before
  // anything else runs. It is written with the next write_histograms().
  void count_gradient(Trainer& trainer, int shape, int64_t step_tokens, double loss_scale);
  void write_histograms(int64_t step, const ParameterLayout& layout, const float* parameters);
  void write_samples(int64_t step, const std::vector<std::string>& samples);
  void flush() { file_.flush(); }

 private:
  EventFile file_;
  std::map<std::string, Histogram> gradients_;  // by module
};

}  // namespace linnet
