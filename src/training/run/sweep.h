// Many runs of one configuration with different values of some keys. FOLDER has a run folder for each (001, 002, ...),
// sweep.json (settings and results so far) and report.html (best first). Values follow from the seed alone, and runs
// resume exactly: so does a stopped sweep.
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
}  // namespace linnet
