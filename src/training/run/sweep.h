// Searches of settings. A sweep: many runs of one configuration with different values of some keys. FOLDER has a run
// folder for each (001, 002, ...), sweep.json (settings and results so far) and report.html (best first). Values follow
// from the seed alone, and runs resume exactly: so does a stopped sweep.
#pragma once
#include "training/run/config_choice.h"
#include "training/run/training_run.h"

namespace linnet {
// The values of a key that a sweep tries: a list or a range.
struct SweepAxis {
  std::string key;                  // as written
  std::vector<std::string> values;  // empty: a range
  double low = 0, high = 0;
  bool is_logarithmic = false, is_whole = false;
};

// Parses "key=0.1,0.2", "key=1e-5..1e-3" or "key=1e-5..1e-3:4", which lists 4 values from end to end. Empty without
// choices. Ranges above 0 whose ends are at least 10 times apart are logarithmic. User error for an invalid range.
std::optional<SweepAxis> parse_sweep_axis(const std::string& setting);

enum class SweepSearch {
  kGrid,     // all combinations of listed values
  kRandom,   // random values
  kHalving,  // like kRandom; after some of the steps, only the best third continues (Jamieson & Talwalkar 2016)
};
template <> inline constexpr std::array kEnumNames<SweepSearch>{"grid", "random", "halving"};

struct SweepRequest {
  ConfigChoice choice;  // without the axes' keys
  std::vector<SweepAxis> axes;
  SweepSearch search = SweepSearch::kRandom;
  int64_t runs = 0;
  uint64_t seed = 1;
  std::string folder;
  std::string program;  // see TrainRequest
};

// The state of a run at the end of a kHalving round, or at its end.
struct SweepResult {
  int64_t steps = 0, best_step = 0;
  double metric = 0, loss = 0;  // of the best evaluation; a higher metric is better
};

struct SweepRun {
  std::string name;                   // of its folder
  std::vector<std::string> settings;  // key=value
  std::vector<SweepResult> rounds;    // finished ones
  std::string error;                  // why it failed
};

struct Sweep {
  std::string metric;
  std::vector<SweepRun> runs;  // best first
  bool stopped = false;        // by a signal
};

Sweep run_sweep(const SweepRequest& request, MakeTask* make_task);
std::string sweep_table(const Sweep& sweep);

// A learning-rate range test (Smith 2017): raises the rate every step, to find where the loss falls and diverges.
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
