// Records the training steps named by ProfileOptions and writes files for each group of them to its folder.
//
//   steps-4-6.pt.trace.json   Chrome's trace format (engine/profile/profile.h)
//   steps-4-6.summary.json    times by op, module and source line
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include "engine/profile/profile.h"

namespace linnet {
class RankProfiles;  // engine/profile/rank_profiles.h

// Counted from the first step that this process trains: after `skip_first` steps, `repeat` times `wait` steps that are
// ignored, `warmup` steps that are recorded and discarded, and `active` steps that are kept.
struct ProfileOptions {
  int64_t skip_first = 0, wait = 1, warmup = 1, active = 0, repeat = 1;  // active 0: nothing is profiled
  std::string folder = "profile";                                        // made when the first file is written
  bool is_on() const { return active > 0; }
};

// "wait=1,warmup=1,active=3,repeat=2"; missing keys have the defaults above, `active` 3. `shown`: the source of the
// text, for messages ("--profile"). Throws Error(kUser).
ProfileOptions parse_profile_options(const std::string& text, const std::string& shown);

// Options from the environment variables LINNET_PROFILE and LINNET_PROFILE_FOLDER ("profile" if unset).
ProfileOptions profile_options_from_environment();

class StepProfiler {
 public:
  // What the profiler asks for when it writes, after the steps.
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

  // Called around each step, from before its batch is requested. Beginning a step again does nothing.
  void begin_step(int64_t step);
  void end_step();
  bool is_done() const { return done_groups_ == options_.repeat; }

  // Called with each group's summary after its files are written. Without it the table goes to standard error.
  std::function<void(const ProfileSummary&)> on_summary;
  // The other ranks' profiles; outlives the last step. null: profiles this process alone.
  RankProfiles* ranks = nullptr;
  bool write_files = true;  // false: only on_summary is called

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
