// Records the training steps named by ProfileOptions and writes files for each group of them to its folder.
//
//   steps-4-6.pt.trace.json   Chrome's trace format (engine/profile/profile.h)
//   steps-4-6.summary.json    times by op, module and source line
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include "distributed/comm/communicator.h"
#include "engine/profile/profile.h"

namespace linnet {
// Give one to each rank's profiler: it joins each group of steps with those of the other ranks, which profile the same
// steps. Rank 0 alone measures and writes.
class RankProfiles {
 public:
  struct Rank {
    Communicator* world;
    std::string name;                // in the trace: "rank 1, stage 1 of 2"
    Communicator* stages = nullptr;  // of this rank's pipeline; null: there is none
    int64_t micro_batches = 1;       // see PipelineBubble
    int chunks = 1;
  };
  explicit RankProfiles(Rank rank) : rank_(std::move(rank)) {}
  RankProfiles(const RankProfiles&) = delete;
  RankProfiles& operator=(const RankProfiles&) = delete;

  bool is_first() const { return rank_.world->rank() == 0; }
  // Every rank calls these.
  void share(MachinePeak& machine) const;  // rank 0's
  // Collective. Returns the trace, a process row per rank, on rank 0, and an empty text elsewhere; finds the bubble.
  // `ahead`: by how many nanoseconds this rank's timeline is ahead of rank 0's, where that is known.
  std::string put_together(const Profile& profile, std::optional<int64_t> ahead = {});
  const PipelineBubble& bubble() const { return bubble_; }  // the bubble of this rank's pipeline in the last call

 private:
  void find_bubble(const Profile& profile, int64_t offset);

  const Rank rank_;
  PipelineBubble bubble_;
};

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
