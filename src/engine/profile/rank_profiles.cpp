#include "engine/profile/rank_profiles.h"
#include <algorithm>
#include <array>
#include <limits>
#include "base/printed.h"
#include "distributed/comm/agreement.h"

namespace linnet {
namespace {
std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

// The texts of all ranks on rank 0; nothing elsewhere.
std::vector<std::string> texts_on_first(Communicator& world, const std::string& own) {
  const uint64_t length = own.size();
  std::vector<uint64_t> lengths(world.size());
  all_gather(world, std::as_bytes(std::span(&length, 1)), std::as_writable_bytes(std::span(lengths)));
  if (world.rank() > 0) {
    const Communicator::Outgoing message{0, bytes_of(own)};
    world.exchange({&message, 1}, {});
    return {};
  }
  std::vector<std::string> texts{own};
  std::vector<Communicator::Incoming> messages;
  for (size_t rank = 1; rank < lengths.size(); ++rank) texts.emplace_back(lengths[rank], ' ');
  for (size_t rank = 1; rank < lengths.size(); ++rank)
    messages.push_back({static_cast<int>(rank), std::as_writable_bytes(std::span(texts[rank]))});
  world.exchange({}, messages);
  return texts;
}

// A stage in one step, in rank 0's time.
struct StageTimes {
  int64_t begin, end;  // of its first and last pass
  int64_t busy;        // in passes
};

constexpr StageTimes kNoTimes{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min(), 0};

StageTimes times_of(const Profile& profile, const ProfiledStep& step, int64_t offset) {
  StageTimes times = kNoTimes;
  for (const Span& span : profile.tracks.front().spans) {
    if (span.kind != SpanKind::kStagePass || span.begin < step.begin || span.end > step.end) continue;
    times.begin = std::min(times.begin, span.begin - offset);
    times.end = std::max(times.end, span.end - offset);
    times.busy += span.end - span.begin;
  }
  return times;
}
}  // namespace

std::string PipelineBubble::text() const {
  if (stages == 1) return {};
  const std::string micro = chunks > 1 ? "(" + std::to_string(chunks) + " m)" : "m";
  return std::to_string(stages) + " stages, " + std::to_string(micro_batches) +
         printed(" micro-batches: they waited %.0f%% of the time they computed; (p - 1) / %s is %.0f%%\n",
             100 * measured, micro.c_str(), 100 * in_theory());
}

void RankProfiles::share(MachinePeak& machine) const {
  machine.name = broadcast_text(*rank_.world, 0, machine.name);
  std::array peaks{machine.flops, machine.bandwidth};
  broadcast(*rank_.world, 0, std::as_writable_bytes(std::span(peaks)));
  machine.flops = peaks[0], machine.bandwidth = peaks[1];
}

std::string RankProfiles::put_together(const Profile& profile, std::optional<int64_t> ahead) {
  // Clocks are compared now, as they may have drifted since the run began.
  const int64_t offset = ahead ? *ahead : clock_offset(*rank_.world, [] { return Timeline::now(); });
  if (rank_.stages) find_bubble(profile, offset);
  Communicator& world = *rank_.world;
  const int64_t start = first_moment(profile) - offset;
  std::vector<int64_t> starts(world.size());
  all_gather(world, std::as_bytes(std::span(&start, 1)), std::as_writable_bytes(std::span(starts)));
  const TracedProcess process{world.rank(), rank_.name, *std::ranges::min_element(starts) + offset};
  const std::vector<std::string> events = texts_on_first(world, trace_events(profile, process));
  return is_first() ? trace_of(events, profile.machine) : std::string();
}

void RankProfiles::find_bubble(const Profile& profile, int64_t offset) {
  const auto stages = static_cast<size_t>(rank_.stages->size());
  const size_t steps = profile.steps.size();
  std::vector<StageTimes> own, all(stages * steps);
  for (const ProfiledStep& step : profile.steps) own.push_back(times_of(profile, step, offset));
  all_gather(*rank_.stages, std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)));
  double waited = 0, busy = 0;
  for (size_t step = 0; step < steps; ++step) {
    StageTimes whole = kNoTimes;
    for (size_t stage = 0; stage < stages; ++stage) {
      const StageTimes& times = all[stage * steps + step];
      whole.begin = std::min(whole.begin, times.begin), whole.end = std::max(whole.end, times.end);
      whole.busy += times.busy;
    }
    waited +=
        static_cast<double>(stages) * static_cast<double>(whole.end - whole.begin) - static_cast<double>(whole.busy);
    busy += static_cast<double>(whole.busy);
  }
  bubble_ = {rank_.stages->size(), rank_.micro_batches, busy > 0 ? waited / busy : 0, rank_.chunks};
}
}  // namespace linnet
