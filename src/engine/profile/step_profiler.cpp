#include "engine/profile/step_profiler.h"
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>
#include "base/fail.h"
#include "base/files.h"
#include "base/log.h"
#include "base/process_memory.h"
#include "engine/profile/rank_profiles.h"

namespace linnet {
namespace {
constexpr int64_t kMostSteps = 1'000'000, kMostActive = 1000;

int64_t number(std::string_view key, std::string_view value, int64_t least, int64_t most, const std::string& shown) {
  int64_t result = -1;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
  if (error != std::errc{} || end != value.data() + value.size() || result < least || result > most)
    fail_user(shown, ": ", key, " must be a whole number from ", least, " to ", most, ", got '", value, "'");
  return result;
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
  ProfileOptions options;
  options.active = 3;
  const std::pair<std::string_view, int64_t*> keys[] = {{"wait", &options.wait}, {"warmup", &options.warmup},
      {"active", &options.active}, {"repeat", &options.repeat}, {"skip_first", &options.skip_first}};
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(part.size() < rest.size() ? part.size() + 1 : part.size());
    const std::string_view key = part.substr(0, part.find('='));
    const std::string_view value = key.size() < part.size() ? part.substr(key.size() + 1) : "";
    int64_t* target = nullptr;
    for (const auto& [name, field] : keys)
      if (key == name) target = field;
    if (!target) fail_user(shown, ": unknown key '", key, "'; there are wait, warmup, active, repeat, skip_first");
    const bool from_one = key == "active" || key == "repeat";
    *target = number(key, value, from_one ? 1 : 0, key == "active" ? kMostActive : kMostSteps, shown);
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
}  // namespace linnet
