#include "engine/profile/step_profiler.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include "base/fail.h"
#include "base/files.h"
#include "base/log.h"
#include "base/numbers.h"
#include "base/process.h"
#include "base/text.h"
#include "distributed/comm/agreement.h"

namespace linnet {
namespace {
constexpr int64_t kMostSteps = 1'000'000, kMostActive = 1000;

int64_t number(std::string_view key, std::string_view value, int64_t least, int64_t most, const std::string& shown) {
  const auto result = parse_number<int64_t>(value);
  if (!result || *result < least || *result > most)
    fail_user(shown, ": ", key, " must be a whole number from ", least, " to ", most, ", got '", value, "'");
  return *result;
}
}  // namespace

StepProfiler::StepProfiler(ProfileOptions options, Source source)
    : options_(std::move(options)), source_(std::move(source)) {}

StepProfiler::~StepProfiler() {
  if (done_groups_ == 0)
    log_warning("nothing was profiled: the run ended before the first " +
                std::to_string(options_.skip_first + options_.wait + options_.warmup + options_.active) +
                " steps of the schedule were done");
  if (current_ < 0 && profile_.steps.empty()) return;
  Timeline::stop();  // the run ended within a group
  Timeline::take();
}

void StepProfiler::begin_step(int64_t step) {
  if (is_done() || current_ == step) return;
  current_ = step;
  if (skipped_ < options_.skip_first) return;
  // Threads' tracks are allocated while warming up.
  if (counted_ == options_.wait) Timeline::start();
  if (counted_ == options_.wait + options_.warmup) Timeline::take();
  began_ = Timeline::now();
}

void StepProfiler::end_step() {
  if (is_done() || current_ < 0) return;
  const int64_t step = std::exchange(current_, -1), first_active = options_.wait + options_.warmup;
  if (skipped_ < options_.skip_first) {
    ++skipped_;
    return;
  }
  if (counted_ >= first_active) profile_.steps.push_back({step, began_, Timeline::now(), resident_bytes()});
  if (++counted_ == first_active + options_.active) finish_group();
}

void StepProfiler::finish_group() {
  Timeline::stop();
  profile_.tracks = Timeline::take();
  std::map<const void*, std::string> names;
  for (const auto& [name, plan] : source_.plans()) names[plan] = name;
  for (const Track& track : profile_.tracks)
    for (const Span& span : track.spans)
      if (span.plan && !profile_.plans.contains(span.plan))
        profile_.plans.emplace(span.plan, describe_plan(names.contains(span.plan) ? names[span.plan] : "generation",
                                              *static_cast<const Plan*>(span.plan), source_.arena));
  const bool is_first = !ranks || ranks->is_first();
  if (profile_.machine.name.empty()) {
    if (is_first) profile_.machine = source_.measure_peak();
    if (ranks) ranks->share(profile_.machine);
  }
  profile_.planned_bytes = source_.planned_bytes();
  const ProfileSummary summary = summarize(profile_);
  const std::string trace = ranks ? ranks->put_together(profile_) : write_files ? chrome_trace(profile_) : "";
  if (write_files && is_first) {
    make_directories(options_.folder);
    const std::string path =
        options_.folder + "/steps-" + std::to_string(summary.first_step) + "-" + std::to_string(summary.last_step);
    write_file_atomically(path + ".pt.trace.json", trace);
    write_file_atomically(path + ".summary.json", summary_json(summary, ranks ? ranks->bubble() : PipelineBubble{}));
  }
  if (is_first && on_summary) on_summary(summary);
  else if (is_first) std::fputs(summary_table(summary, 10).c_str(), stderr);
  profile_.steps.clear(), profile_.tracks.clear();
  counted_ = 0;
  ++done_groups_;
}

ProfileOptions parse_profile_options(const std::string& text, const std::string& shown) {
  ProfileOptions options{.active = 3};
  const std::pair<std::string_view, int64_t*> keys[] = {{"wait", &options.wait}, {"warmup", &options.warmup},
      {"active", &options.active}, {"repeat", &options.repeat}, {"skip_first", &options.skip_first}};
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(part.size() < rest.size() ? part.size() + 1 : part.size());
    const std::string_view key = part.substr(0, part.find('='));
    const std::string_view value = key.size() < part.size() ? part.substr(key.size() + 1) : "";
    const auto* found = find_item(keys, key, [](const auto& known) { return known.first; });
    if (!found) fail_user(shown, ": unknown key '", key, "'; there are wait, warmup, active, repeat, skip_first");
    const bool from_one = key == "active" || key == "repeat";
    *found->second = number(key, value, from_one ? 1 : 0, key == "active" ? kMostActive : kMostSteps, shown);
  }
  return options;
}

ProfileOptions profile_options_from_environment() {
  const char* text = std::getenv("LINNET_PROFILE");
  if (!text || !*text) return {};
  ProfileOptions options = parse_profile_options(text, "LINNET_PROFILE");
  if (const char* folder = std::getenv("LINNET_PROFILE_FOLDER"); folder && *folder) options.folder = folder;
  return options;
}

namespace {
// The texts of all ranks on rank 0; nothing elsewhere.
std::vector<std::string> texts_on_first(Communicator& world, const std::string& own) {
  const std::vector<size_t> lengths = all_gather(world, own.size());
  if (world.rank() > 0) {
    send(world, 0, std::as_bytes(std::span(own)));
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
  const auto peaks = broadcast_value(*rank_.world, 0, std::array{machine.flops, machine.bandwidth});
  machine.flops = peaks[0], machine.bandwidth = peaks[1];
}

std::string RankProfiles::put_together(const Profile& profile, std::optional<int64_t> ahead) {
  // Clocks are compared now, as they may have drifted since the run began.
  const int64_t offset = ahead ? *ahead : clock_offset(*rank_.world, [] { return Timeline::now(); });
  if (rank_.stages) find_bubble(profile, offset);
  Communicator& world = *rank_.world;
  const std::vector<int64_t> starts = all_gather(world, first_moment(profile) - offset);
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
