// Joins the profiles of a run's ranks: one trace in rank 0's time, and how long pipeline stages waited.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>
#include "distributed/comm/communicator.h"
#include "engine/profile/profile.h"

namespace linnet {
// Give one to each rank's profiler (engine/profile/step_profiler.h): it joins each group of steps with those of the
// other ranks, which profile the same steps. Rank 0 alone measures and writes.
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

// Parts of chrome_trace(): the events of one process, and the trace of all. `start`: the trace's time 0.
struct TracedProcess {
  int id = 1;  // unique in the trace, and the order of the processes
  std::string name = "linnet";
  int64_t start = 0;
};
int64_t first_moment(const Profile& profile);
std::string trace_events(const Profile& profile, const TracedProcess& process);
std::string trace_of(const std::vector<std::string>& events, const MachinePeak& machine);
}  // namespace linnet
