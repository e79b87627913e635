// A learning-rate range test (Smith 2017): raises the rate every step, to find where the loss falls and diverges.
#pragma once
#include "training/run/training_task.h"

namespace linnet {
struct RateRange {
  double from = 1e-6, to = 1;
};

// Parses "1e-6:1". Throws Error(kUser) unless 0 < low < high.
RateRange parse_rate_range(const std::string& text);

struct RateTrial {
  double rate, loss;  // the loss is a running average
};

struct RateAnswer {
  std::vector<RateTrial> trials;
  double suggestion = 0;   // where the loss fell fastest; 0: it did not fall
  double highest = 0;      // the loss rises above this rate; 0: at none
  bool broke_out = false;  // ended early: the loss was far above its lowest, or not finite
};

// Trains from the task's initial weights, which are lost. Stops early on a signal.
RateAnswer test_rates(TrainingTask& task, const RateRange& range, int64_t steps);

RateAnswer judge_rates(std::vector<RateTrial> trials, bool broke_out);

// A text chart of the loss over the rate, and the suggestion.
std::string rate_chart(const RateAnswer& answer);
}  // namespace linnet
