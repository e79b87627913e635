#include "distributed/simulate/schedule.h"

#include <algorithm>
#include <array>
#include <functional>
#include <queue>
#include <utility>

#include "base/error.h"
#include "base/json.h"

namespace linnet {
namespace {

size_t index_of(const Lane& lane) {
  return static_cast<size_t>(lane.rank) * kLaneKinds + static_cast<size_t>(lane.kind);
}

}  // namespace

const char* operation_kind_name(OperationKind kind) {
  constexpr std::array<const char*, kOperationKinds> kNames{"forward",    "backward",        "update",  "gradients",
                                                            "parameters", "tensor parallel", "pipeline"};
  return kNames[static_cast<size_t>(kind)];
}

bool is_communication(OperationKind kind) { return kind >= OperationKind::kGradients; }

OperationId RankSchedule::add(Operation operation) {
  const auto id = static_cast<OperationId>(operations_.size());
  for (const OperationId before : operation.after)
    if (before < 0 || before >= id) fail_internal("an operation waits for one that was not added before it");
  for (const Lane& lane : operation.lanes)
    if (lane.rank < 0 || lane.rank >= ranks_) fail_internal("an operation of a rank that there is not");
  operations_.push_back(std::move(operation));
  return id;
}

std::vector<Interval> RankSchedule::simulate() const {
  std::vector<Interval> intervals(operations_.size());
  std::vector<int> waiting(operations_.size());
  std::vector<std::vector<OperationId>> readers(operations_.size());
  std::vector<double> ready(operations_.size()), free(static_cast<size_t>(ranks_) * kLaneKinds);
  // The earliest event first; of simultaneous ones that of the operation which was added first.
  using Event = std::pair<double, OperationId>;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
  for (size_t id = 0; id < operations_.size(); ++id) {
    waiting[id] = static_cast<int>(operations_[id].after.size());
    for (const OperationId before : operations_[id].after)
      readers[static_cast<size_t>(before)].push_back(static_cast<OperationId>(id));
    if (waiting[id] == 0) events.emplace(0.0, static_cast<OperationId>(id));
  }
  while (!events.empty()) {
    const auto id = static_cast<size_t>(events.top().second);
    events.pop();
    const Operation& operation = operations_[id];
    double begin = ready[id];
    for (const Lane& lane : operation.lanes) begin = std::max(begin, free[index_of(lane)]);
    intervals[id] = {begin, begin + operation.seconds};
    for (const Lane& lane : operation.lanes) free[index_of(lane)] = intervals[id].end;
    for (const OperationId reader : readers[id]) {
      const auto next = static_cast<size_t>(reader);
      ready[next] = std::max(ready[next], intervals[id].end);
      if (--waiting[next] == 0) events.emplace(ready[next], reader);
    }
  }
  return intervals;
}

double duration_of(const std::vector<Interval>& intervals) {
  double end = 0;
  for (const Interval& interval : intervals) end = std::max(end, interval.end);
  return end;
}

std::string chrome_trace(const RankSchedule& schedule, const std::vector<Interval>& intervals) {
  constexpr std::array<const char*, kLaneKinds> kTracks{"compute", "send", "receive"};
  Json events = Json::array();
  std::vector<bool> used(static_cast<size_t>(schedule.ranks()) * kLaneKinds);
  for (const Operation& operation : schedule.operations())
    for (const Lane& lane : operation.lanes) used[index_of(lane)] = true;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    events.push_back({{"ph", "M"},
                      {"name", "process_name"},
                      {"pid", rank},
                      {"tid", 0},
                      {"args", {{"name", "rank " + std::to_string(rank)}}}});
    for (int kind = 0; kind < kLaneKinds; ++kind)
      if (used[index_of({rank, static_cast<LaneKind>(kind)})])
        events.push_back({{"ph", "M"},
                          {"name", "thread_name"},
                          {"pid", rank},
                          {"tid", kind},
                          {"args", {{"name", kTracks[static_cast<size_t>(kind)]}}}});
  }
  for (size_t id = 0; id < intervals.size(); ++id) {
    const Operation& operation = schedule.operations()[id];
    if (operation.seconds <= 0) continue;
    for (const Lane& lane : operation.lanes) {
      Json event{{"ph", "X"},
                 {"cat", operation_kind_name(operation.kind)},
                 {"name", operation.name},
                 {"pid", lane.rank},
                 {"tid", static_cast<int>(lane.kind)},
                 {"ts", intervals[id].begin * 1e6},
                 {"dur", (intervals[id].end - intervals[id].begin) * 1e6}};
      if (operation.sent_bytes > 0) event["args"] = {{"Bytes", operation.sent_bytes}};
      events.push_back(std::move(event));
    }
  }
  const Json json{{"displayTimeUnit", "ms"},
                  {"distributedInfo", {{"backend", "simulated"}, {"rank", 0}, {"world_size", schedule.ranks()}}},
                  {"traceEvents", std::move(events)}};
  return json.dump() + "\n";
}

}  // namespace linnet
