#include <algorithm>
#include "base/json.h"
#include "base/text.h"
#include "engine/profile/profile.h"
#include "engine/profile/step_profiler.h"

namespace linnet {
namespace {
constexpr int64_t kShortest = 300;  // nanoseconds: nodes that only name memory in another way are left out

class Trace {
 public:
  Trace(const Profile& profile, const TracedProcess& process) : profile_(profile), process_(process) {}

  Json events() {
    name_tracks();
    for (const ProfiledStep& step : profile_.steps) add_step(step);
    for (size_t i = 0; i < profile_.tracks.size(); ++i) add_track(static_cast<int>(i));
    return std::move(events_);
  }

 private:
  double micros(int64_t nanoseconds) const { return static_cast<double>(nanoseconds - process_.start) / 1000; }

  void add(const char* phase, const std::string& name, int thread, Json others) {
    Json event{{"ph", phase}, {"name", name}, {"pid", process_.id}, {"tid", thread}};
    event.update(std::move(others));
    events_.push_back(std::move(event));
  }

  void slice(const char* category, const std::string& name, int thread, int64_t begin, int64_t end,
      Json arguments = Json::object()) {
    const double duration = static_cast<double>(end - begin) / 1000;
    add("X", name, thread,
        {{"cat", category}, {"ts", micros(begin)}, {"dur", duration}, {"args", std::move(arguments)}});
  }

  void counter(const char* name, int64_t when, const char* series, double value) {
    add("C", name, 0, {{"cat", "memory"}, {"ts", micros(when)}, {"args", {{series, value}}}});
  }

  void name_tracks() {
    add("M", "process_name", 0, {{"args", {{"name", process_.name}}}});
    add("M", "process_sort_index", 0, {{"args", {{"sort_index", process_.id}}}});
    for (int i = 0; i < std::ssize(profile_.tracks); ++i)
      add("M", "thread_name", i, {{"args", {{"name", profile_.tracks[i].thread}}}});
  }

  void add_step(const ProfiledStep& step) {
    slice("user_annotation", "ProfilerStep#" + std::to_string(step.step), 0, step.begin, step.end);
    counter("process memory", step.end, "MB", static_cast<double>(step.process_bytes) / 1e6);
    counter("planned memory", step.begin, "MB", static_cast<double>(profile_.planned_bytes) / 1e6);
  }

  const NodeProfile* node_of(const Span& span) const {
    const auto plan = profile_.plans.find(span.plan);
    return plan == profile_.plans.end() ? nullptr : &plan->second.nodes[span.index];
  }

  // Slices around consecutive spans for which `key` returns the same non-empty name.
  template <class Key> void groups(const std::vector<Span>& spans, const char* category, int thread, const Key& key) {
    for (size_t first = 0; first < spans.size();) {
      const std::string name = key(spans[first]);
      size_t last = first;
      // A gap is an interruption, which belongs to no slice.
      while (last + 1 < spans.size() && key(spans[last + 1]) == name && spans[last + 1].plan == spans[first].plan &&
             spans[last + 1].begin == spans[last].end && spans[last + 1].index == spans[last].index + 1)
        ++last;
      if (!name.empty()) slice(category, name, thread, spans[first].begin, spans[last].end);
      first = last + 1;
    }
  }

  void add_track(int thread) {
    const std::vector<Span>& spans = profile_.tracks[thread].spans;
    if (thread == 0) {
      groups(spans, "user_annotation", thread, [&](const Span& span) -> std::string {
        const NodeProfile* node = node_of(span);
        return node ? enum_name(node->phase) : "";
      });
      groups(spans, "user_annotation", thread, [&](const Span& span) -> std::string {
        const NodeProfile* node = node_of(span);
        return node && !node->module.empty() ? std::string(enum_name(node->phase)) + ": " + node->module : "";
      });
    }
    for (const Span& span : spans) {
      const NodeProfile* node = node_of(span);
      if (node && span.end - span.begin < kShortest && node->flops == 0) continue;
      if (node) add_node(thread, span, *node);
      else add_host_span(thread, span);
    }
  }

  void add_host_span(int thread, const Span& span) {
    Json arguments{{"Phase", enum_name(span.kind)}};
    if (span.kind == SpanKind::kStagePass) arguments["Micro-batch"] = span.index;
    slice("cpu_op", span.name ? span.name : "work", thread, span.begin, span.end, std::move(arguments));
  }

  void add_node(int thread, const Span& span, const NodeProfile& node) {
    const double seconds = static_cast<double>(span.end - span.begin) * 1e-9;
    Json arguments{{"Phase", enum_name(node.phase)}, {"Module", node.module}, {"Source", node.source},
        {"Plan", profile_.plans.at(span.plan).name}};
    if (thread == 0) {
      arguments["Bytes"] = node.bytes;
      if (node.flops > 0) {
        arguments["FLOPs"] = node.flops;
        arguments["GFLOP/s"] = node.flops / seconds * 1e-9;
        if (profile_.machine.flops > 0) arguments["Share of peak"] = node.flops / seconds / profile_.machine.flops;
      }
      if (profile_.machine.bandwidth > 0)
        arguments["Share of bandwidth"] = node.bytes / seconds / profile_.machine.bandwidth;
      const double live = static_cast<double>(profile_.plans.at(span.plan).live[span.index]);
      counter("live activations", span.begin, "MB", live / 1e6);
    }
    slice("cpu_op", node.label, thread, span.begin, span.end, std::move(arguments));
  }

  const Profile& profile_;
  const TracedProcess& process_;
  Json events_ = Json::array();
};
}  // namespace

int64_t first_moment(const Profile& profile) {
  int64_t first = profile.steps.front().begin;
  for (const Track& track : profile.tracks)
    for (const Span& span : track.spans) first = std::min(first, span.begin);
  return first;
}

std::string trace_events(const Profile& profile, const TracedProcess& process) {
  const std::string list = Trace(profile, process).events().dump();
  return list.substr(1, list.size() - 2);
}

// The events are formatted texts, since there may be many.
std::string trace_of(const std::vector<std::string>& events, const MachinePeak& machine) {
  const bool is_one = events.size() == 1;
  const Json head{{"schemaVersion", 1}, {"displayTimeUnit", "ms"},
      {"distributedInfo", {{"backend", is_one ? "none" : "mpi"}, {"rank", 0}, {"world_size", events.size()}}},
      {"deviceProperties", Json::array()}, {"machine", machine.name}};
  std::string text = head.dump();
  text.pop_back();
  return text + ",\"traceEvents\":[" + joined(events, ",") + "]}\n";
}

std::string chrome_trace(const Profile& profile) {
  return trace_of({trace_events(profile, {.start = first_moment(profile)})}, profile.machine);
}
}  // namespace linnet
