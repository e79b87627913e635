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
#include <vector>

#include "formats/event_file.h"
#include "training/run/metrics_log.h"
#include "training/trainer/trainer.h"

namespace linnet {

class EventLog {
 public:
  // `last_step`: of the checkpoint that the run goes on from; 0 for a new run.
  EventLog(const std::string& folder, int64_t last_step) : file_(folder, last_step + 1) {}

  void write(const MetricsLine& line);
  // Counts the gradient of the step that the trainer ran last, which was of this shape and had so many tokens; before
  // anything else runs. It is written with the next write_histograms().
  void count_gradient(Trainer& trainer, int shape, int64_t tokens);
  void write_histograms(int64_t step, const ParameterLayout& layout, const float* parameters);
  void write_samples(int64_t step, const std::vector<std::string>& samples);
  void flush() { file_.flush(); }

 private:
  EventFile file_;
  std::map<std::string, Histogram> gradients_;  // by module
};

}  // namespace linnet
