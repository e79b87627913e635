// Records the training steps that ProfileOptions name and writes, after each group of them, to its folder
//
//   steps-4-6.pt.trace.json   Chrome's trace format (engine/profile/profile.h)
//   steps-4-6.summary.json    times by op, module and source line
#pragma once
#include <functional>
#include <map>
#include <string>

#include "engine/profile/profile.h"
#include "engine/profile/profile_options.h"

namespace linnet {

class StepProfiler {
 public:
  // What the profiler asks when it writes, after the steps.
  struct Source {
    std::function<std::map<std::string, const Plan*>()> plans;  // known by name; others may have run, too
    std::function<MachinePeak()> measure_peak;                  // called once
    RegionId arena = -1;
    std::function<size_t()> planned_bytes;  // of the whole store
  };

  StepProfiler(ProfileOptions options, Source source);
  ~StepProfiler();
  StepProfiler(const StepProfiler&) = delete;
  StepProfiler& operator=(const StepProfiler&) = delete;

  // Called around each step, from before its batch is asked for. Beginning a step again does nothing.
  void begin_step(int64_t step);
  void end_step();
  // All groups have been recorded.
  bool is_done() const { return done_groups_ == options_.repeat; }

  // Called with each group's summary after its files are written. Without it the table goes to standard error.
  std::function<void(const ProfileSummary&)> on_summary;
  // Off: nothing is written, on_summary alone is called.
  bool write_files = true;

 private:
  void finish_group();

  const ProfileOptions options_;
  const Source source_;
  int64_t counted_ = 0;  // steps ended, after skip_first of this group's cycle
  int64_t skipped_ = 0, done_groups_ = 0;
  int64_t current_ = -1, began_ = 0;
  Profile profile_;
};

}  // namespace linnet
