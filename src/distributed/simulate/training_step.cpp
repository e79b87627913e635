#include "distributed/simulate/training_step.h"
#include <algorithm>
#include <limits>
#include <map>
#include <queue>
#include <tuple>
#include <utility>
#include "base/error.h"
#include "base/json.h"
#include "distributed/comm/tensor_group.h"

namespace linnet {
std::string layout_text(const RankLayout& layout) {
  std::string text = "data=" + std::to_string(layout.data);
  if (layout.tensor > 1) text += ",tensor=" + std::to_string(layout.tensor);
  if (layout.pipeline > 1)
    text += ",pipeline=" + (layout.splits_encoder ? "encoder-decoder" : std::to_string(layout.pipeline));
  if (layout.interleave > 1) text += ",interleave=" + std::to_string(layout.interleave);
  return text;
}

std::vector<RankLayout> layouts_of(int ranks, int most_tensor, int most_pipeline) {
  std::vector<RankLayout> layouts;
  for (int pipeline = 1; pipeline <= std::min(ranks, most_pipeline); ++pipeline)
    for (int tensor = 1; tensor <= std::min(ranks / pipeline, most_tensor); ++tensor)
      if (ranks % (pipeline * tensor) == 0) layouts.push_back({ranks / (pipeline * tensor), tensor, pipeline});
  return layouts;
}

namespace {
size_t index_of(const Lane& lane) {
  return static_cast<size_t>(lane.rank) * kLaneKinds + static_cast<size_t>(lane.kind);
}

constexpr OperationId kNoOperation = -1;

class Builder {
 public:
  Builder(const TrainingStep& step, const Network& network)
      : step_(step), layout_(step.layout), network_(network), schedule_(layout_.ranks()),
        last_(layout_.ranks(), kNoOperation), completed_(layout_.ranks()) {
    if (step.stages.size() != static_cast<size_t>(layout_.stages())) fail_internal("a step without all of its stages");
  }

  RankSchedule build() {
    for (int data = 0; data < layout_.data; ++data) add_pipeline(data);
    for (int rank = 0; rank < layout_.pipeline; ++rank) add_sums(rank);
    add_norms();
    for (int rank = 0; rank < layout_.pipeline; ++rank) add_update(rank);
    return std::move(schedule_);
  }

 private:
  struct RankState {
    std::vector<PipelinePass> passes;
    size_t done = 0;
  };
  // When the inputs of a stage's pass have arrived, by tensor rank; empty: not sent yet.
  using Arrivals = std::map<std::tuple<bool, int, int64_t>, std::vector<OperationId>>;  // forward, stage, micro-batch

  int rank_of(int data, int pipeline, int tensor) const {
    return (data * layout_.pipeline + pipeline) * layout_.tensor + tensor;
  }
  const StageWork& stage(int index) const { return step_.stages[index]; }
  PipelineOrder order() const { return {layout_.pipeline, layout_.interleave, step_.micro_batches}; }

  std::vector<int> data_group(int pipeline, int tensor) const {
    return some_ranks(rank_of(0, pipeline, tensor), layout_.data, layout_.ranks_of_model());
  }

  // The next operation of the ranks' own threads.
  OperationId add_next(Operation operation, const std::vector<int>& ranks) {
    for (const int rank : ranks)
      if (last(rank) != kNoOperation) operation.after.push_back(last(rank));
    const OperationId id = schedule_.add(std::move(operation));
    for (const int rank : ranks) last(rank) = id;
    return id;
  }
  OperationId& last(int rank) { return last_[rank]; }

  void compute(
      int rank, const std::string& name, OperationKind kind, double seconds, OperationId arrival = kNoOperation) {
    Operation operation{.name = name, .kind = kind, .seconds = seconds, .lanes = {{rank, LaneKind::kCompute}}};
    if (arrival != kNoOperation) operation.after.push_back(arrival);
    add_next(std::move(operation), {rank});
  }

  Operation exchange(const std::string& name, OperationKind kind, const Traffic& traffic, const std::vector<int>& ranks,
      bool computes) const {
    Operation operation{.name = name, .kind = kind, .seconds = seconds_of(traffic, network_)};
    operation.sent_bytes = traffic.sent_bytes;
    for (const int rank : ranks) {
      operation.lanes.push_back({rank, LaneKind::kSend});
      operation.lanes.push_back({rank, LaneKind::kReceive});
      if (computes) operation.lanes.push_back({rank, LaneKind::kCompute});
    }
    return operation;
  }

  void exchange_now(
      const std::string& name, OperationKind kind, const Traffic& traffic, const std::vector<int>& ranks) {
    if (traffic.exchanges > 0 && ranks.size() > 1) add_next(exchange(name, kind, traffic, ranks, true), ranks);
  }

  OperationId send(const std::string& name, double bytes, int from, int to) {
    Operation operation{.name = name,
        .kind = OperationKind::kPipeline,
        .seconds = seconds_of(send_traffic(bytes), network_),
        .lanes = {{from, LaneKind::kSend}, {to, LaneKind::kReceive}},
        .sent_bytes = bytes};
    for (const int rank : {from, to})
      if (!network_.overlaps) operation.lanes.push_back({rank, LaneKind::kCompute});
    if (last(from) != kNoOperation) operation.after.push_back(last(from));
    return schedule_.add(std::move(operation));
  }

  // A pass of one micro-batch by the ranks of a stage. `arrivals`: what it waits for, by tensor rank.
  void add_pass(int data, int pipeline, const PipelinePass& pass, const std::vector<OperationId>& arrivals) {
    const StageWork& work = stage(stage_of(pipeline, pass));
    const bool forward = pass.is_forward;
    const OperationKind kind = forward ? OperationKind::kForward : OperationKind::kBackward;
    const std::vector<int> group = some_ranks(rank_of(data, pipeline, 0), layout_.tensor, 1);
    const std::string suffix = step_.micro_batches > 1 ? " " + std::to_string(pass.micro) : "";
    for (size_t i = 0; i < group.size(); ++i)
      if (!arrivals.empty()) compute(group[i], "wait", kind, 0, arrivals[i]);
    for (const int rank : group) completed_[rank].assign(1, last(rank));
    for (const WorkItem& item : forward ? work.forward : work.backward) {
      for (const int rank : group)
        if (item.seconds > 0) compute(rank, item.name + suffix, kind, item.seconds);
      exchange_now(item.name, OperationKind::kTensor, item.exchange, group);
      for (const int rank : group) completed_[rank].push_back(last(rank));
    }
  }

  int stage_of(int pipeline, const PipelinePass& pass) const { return pass.chunk * layout_.pipeline + pipeline; }

  // All micro-batches of the ranks of one model.
  void add_pipeline(int data) {
    auto states = mapped(layout_.pipeline, [&](int rank) { return RankState{pipeline_passes(order(), rank)}; });
    Arrivals arrivals;
    for (bool any = true; any;) {
      any = false;
      for (int rank = 0; rank < layout_.pipeline; ++rank)
        while (add_next_pass(data, rank, states[rank], arrivals)) any = true;
    }
    for (const RankState& state : states)
      if (state.done < state.passes.size()) fail_internal("a pipeline whose stages wait for each other");
  }

  // False if all is done, or an input of the next pass is not in the schedule yet.
  bool add_next_pass(int data, int rank, RankState& state, Arrivals& arrivals) {
    if (state.done == state.passes.size()) return false;
    const PipelinePass& pass = state.passes[state.done];
    const int own = stage_of(rank, pass), next = own + (pass.is_forward ? 1 : -1);
    const std::vector<OperationId>& needed = arrivals[{pass.is_forward, own, pass.micro}];
    if (pipeline_sender(order(), rank, pass) >= 0 && needed.empty()) return false;
    add_pass(data, rank, pass, needed);
    if (const int to = pipeline_receiver(order(), rank, pass); to >= 0) {
      const double bytes = stage(std::min(own, next)).sent_bytes;
      const std::string name = (pass.is_forward ? "activations " : "gradient ") + std::to_string(pass.micro);
      std::vector<OperationId>& arrived = arrivals[{pass.is_forward, next, pass.micro}];
      for (int tensor = 0; tensor < layout_.tensor; ++tensor)
        arrived.push_back(send(name, bytes, rank_of(data, rank, tensor), rank_of(data, to, tensor)));
    }
    ++state.done;
    return true;
  }

  // Sums the gradients of all data groups. completed_ is of the last backward pass.
  void add_sums(int rank) {
    if (layout_.data == 1) return;
    for (int tensor = 0; tensor < layout_.tensor; ++tensor) {
      const std::vector<int> group = data_group(rank, tensor);
      OperationId before = kNoOperation;
      for (int chunk = 0; chunk < layout_.interleave; ++chunk)
        before = add_gradients(stage(chunk * layout_.pipeline + rank), group, before);
      Operation counts = exchange("counts", OperationKind::kGradients, stage(rank).counts, group, true);
      if (before != kNoOperation) counts.after.push_back(before);
      add_next(std::move(counts), group);
      for (int chunk = 0; chunk < layout_.interleave && !step_.divides_update; ++chunk)
        exchange_now(
            "gather gradients", OperationKind::kGradients, stage(chunk * layout_.pipeline + rank).gather, group);
    }
  }

  // Sums a stage's gradients after the operation `before`. Returns the last operation.
  OperationId add_gradients(const StageWork& work, const std::vector<int>& group, OperationId before) {
    const bool early = step_.adds_early;
    for (size_t i = 0; i < work.gradients.size(); ++i) {
      const GradientTraffic& bucket = work.gradients[i];
      Operation sum = exchange("gradients " + std::to_string(i), OperationKind::kGradients, bucket.traffic, group,
          !early || !network_.overlaps);
      sum.seconds += bucket.add_seconds;
      Operation wait =
          exchange("wait for gradients " + std::to_string(i), OperationKind::kGradients, {}, group, !early);
      wait.seconds = bucket.wait_seconds;
      if (before != kNoOperation) wait.after.push_back(before);
      for (const int rank : group) {
        const auto& completed = completed_[rank];
        const OperationId ready = early ? completed[std::min(bucket.after, completed.size() - 1)] : last(rank);
        if (ready != kNoOperation) wait.after.push_back(ready);
      }
      sum.after = wait.after;
      if (wait.seconds > 0) sum.after.push_back(schedule_.add(std::move(wait)));
      before = schedule_.add(std::move(sum));
    }
    return before;
  }

  // Clipping needs the norm of the whole gradient: each rank of a model sends one number.
  void add_norms() {
    const int of_model = layout_.ranks_of_model();
    for (int data = 0; data < layout_.data; ++data)
      exchange_now(
          "norm", OperationKind::kTensor, all_reduce_traffic(1, of_model), some_ranks(data * of_model, of_model, 1));
  }

  void add_update(int rank) {
    for (int chunk = 0; chunk < layout_.interleave; ++chunk) {
      const StageWork& work = stage(chunk * layout_.pipeline + rank);
      for (int tensor = 0; tensor < layout_.tensor; ++tensor) {
        const std::vector<int> group = data_group(rank, tensor);
        for (const int each : group) compute(each, "update", OperationKind::kUpdate, work.update_seconds);
        if (step_.divides_update) exchange_now("gather parameters", OperationKind::kParameters, work.gather, group);
      }
    }
  }

  const TrainingStep& step_;
  const RankLayout layout_;
  const Network network_;
  RankSchedule schedule_;
  std::vector<OperationId> last_;                    // by rank, of its own thread
  std::vector<std::vector<OperationId>> completed_;  // by rank, after so many items of its last pass
};
}  // namespace

RankSchedule schedule_of(const TrainingStep& step, const Network& network) { return Builder(step, network).build(); }

StepForecast forecast_step(const TrainingStep& step, const Network& network) {
  const RankSchedule schedule = schedule_of(step, network);
  StepForecast forecast{.seconds = duration_of(schedule.simulate())};
  std::vector<std::array<double, kOperationKinds>> sent(schedule.ranks());
  std::vector<double> total(schedule.ranks());
  for (const Operation& operation : schedule.operations())
    for (const Lane& lane : operation.lanes) {
      const auto rank = static_cast<size_t>(lane.rank);
      if (!is_communication(operation.kind)) forecast.compute_seconds += operation.seconds / schedule.ranks();
      if (lane.kind != LaneKind::kSend) continue;
      sent[rank][static_cast<size_t>(operation.kind)] += operation.sent_bytes;
      total[rank] += operation.sent_bytes;
    }
  forecast.sent_bytes = sent[std::ranges::max_element(total) - total.begin()];
  TrainingStep without_sums = step;
  for (StageWork& stage : without_sums.stages)
    for (GradientTraffic& gradient : stage.gradients) gradient.add_seconds = gradient.wait_seconds = 0;
  const Network none{.bytes_per_second = std::numeric_limits<double>::infinity()};
  const double without_network = duration_of(schedule_of(without_sums, none).simulate());
  forecast.bubble_seconds = without_network - forecast.compute_seconds;
  forecast.exposed_seconds = forecast.seconds - without_network;
  return forecast;
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
  // The earliest event first, then the operation that was added first.
  using Event = std::pair<double, OperationId>;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
  for (OperationId id = 0; id < std::ssize(operations_); ++id) {
    const std::vector<OperationId>& after = operations_[id].after;
    waiting[id] = static_cast<int>(after.size());
    for (const OperationId before : after) readers[before].push_back(id);
    if (after.empty()) events.emplace(0.0, id);
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
  return intervals.empty() ? 0 : std::ranges::max(intervals, {}, &Interval::end).end;
}

std::string chrome_trace(const RankSchedule& schedule, const std::vector<Interval>& intervals) {
  constexpr std::array<const char*, kLaneKinds> kTracks{"compute", "send", "receive"};
  Json events = Json::array();
  std::vector<bool> used(static_cast<size_t>(schedule.ranks()) * kLaneKinds);
  for (const Operation& operation : schedule.operations())
    for (const Lane& lane : operation.lanes) used[index_of(lane)] = true;
  const auto add_name = [&](const char* of, int rank, int kind, const std::string& name) {
    events.push_back({{"ph", "M"}, {"name", of}, {"pid", rank}, {"tid", kind}, {"args", {{"name", name}}}});
  };
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    add_name("process_name", rank, 0, "rank " + std::to_string(rank));
    for (int kind = 0; kind < kLaneKinds; ++kind)
      if (used[index_of({rank, static_cast<LaneKind>(kind)})])
        add_name("thread_name", rank, kind, kTracks[static_cast<size_t>(kind)]);
  }
  for (size_t id = 0; id < intervals.size(); ++id) {
    const Operation& operation = schedule.operations()[id];
    if (operation.seconds <= 0) continue;
    for (const Lane& lane : operation.lanes) {
      Json event{{"ph", "X"}, {"cat", enum_name(operation.kind)}, {"name", operation.name}, {"pid", lane.rank},
          {"tid", static_cast<int>(lane.kind)}, {"ts", intervals[id].begin * 1e6},
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
