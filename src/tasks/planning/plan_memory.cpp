#include "tasks/planning/plan_memory.h"
#include <tuple>
#include "base/error.h"
#include "base/process.h"
#include "engine/ir/op.h"
#include "engine/ops/collective/collective.h"
#include "engine/passes/passes.h"
#include "engine/profile/profile.h"
#include "models/nn/pipeline_parallel.h"
#include "tasks/task_table.h"
#include "training/run/run_record.h"
#include "training/trainer/step_graphs.h"

namespace linnet {
namespace {
// The largest value with fits(value), found by doubling, then bisection; 0 if fits(least) is false.
int64_t largest_fit(int64_t least, int64_t most, const std::function<bool(int64_t)>& fits) {
  if (fits(most)) return most;
  if (!fits(least)) return 0;
  int64_t low = least, high = least;
  while (high < most && fits(high = std::min(2 * high, most))) low = high;
  while (high - low > std::max<int64_t>(least, low / 64)) {
    const int64_t middle = (low + high) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

void describe(const Session& session, PlanAnswer& answer) {
  answer.recomputation = session.trainer->plans().largest_fit().text();
  answer.parameters = session.layout.whole_parameter_count();
  answer.stage = stage_text(session.layout);
  std::tie(answer.arena_bytes, answer.arena_lower_bound) = session.trainer->plans().arena_use();
  answer.fusion = fusion_report(session.trainer->plans().pass_reports());
  answer.memory_record = memory_record(*session.trainer, answer.forecast);
}

constexpr double kProductShare = 0.8;   // share of the machine's peak that large products reach
constexpr size_t kLossTokensStops = 3;  // values beside gradients that ranks add
// Seconds between message checks of ranks that add gradients during a backward pass (Wait::kPatiently in
// distributed/mpi/mpi_communicator.cpp, plus the system's delay of so short a sleep).
constexpr double kLook = 1e-4;

// Views of values cost nothing.
bool is_free(const Graph& graph, const Node& node) {
  const Algebra algebra = algebra_of(node);
  if (algebra != Algebra::kReshape && algebra != Algebra::kSplit && algebra != Algebra::kConcat) return false;
  const auto& values = algebra == Algebra::kConcat ? node.in : node.out;
  return std::ranges::all_of(values, [&](ValueId id) { return graph.value(id).view.has_value(); });
}

// The longer of a node's compute and memory times.
double node_seconds(const Graph& graph, const Node& node, const MachineSpeed& speed) {
  if (is_free(graph, node)) return 0;
  const auto bytes_of = [&](ValueId id) { return graph.value(id).type.bytes(); };
  const size_t bytes = sum_of<size_t>(node.in, bytes_of) + sum_of<size_t>(node.out, bytes_of);
  return std::max(
      node_flops(graph, node) / (kProductShare * speed.flops), static_cast<double>(bytes) / speed.bandwidth);
}

double plan_seconds(const Plan* plan, const MachineSpeed& speed) {
  if (!plan) return 0;
  return sum_of<double>(plan->graph.nodes(), [&](const Node& node) { return node_seconds(plan->graph, node, speed); });
}

Traffic exchange_of(const Graph& graph, const Node& node) {
  const auto values = [&](ValueId id) { return static_cast<size_t>(graph.value(id).type.shape.elements()); };
  if (node.op == &kAllReduce) return all_reduce_traffic(values(node.in[0]), node.attrs.as<CollectiveAttrs>().ranks);
  if (node.op == &kAllGather) return all_gather_traffic(values(node.in[0]), node.attrs.as<AllGatherAttrs>().ranks);
  return {};
}

// "decoder.layers.3.self_attention" is in layer "decoder.layers.3", "norm.weight" in block "norm".
std::string block_name(const std::string& path) {
  const std::string_view layer = block_path(path);
  return path.substr(0, layer.empty() ? path.find('.') : layer.size());
}

// The items of a stage's passes, in node order: one for each block in turn, split at exchanges.
class StageItems {
 public:
  // Calls after_node(id) for each node of the plan.
  template <class AfterNode>
  void add(const Plan& plan, const char* name, RegionId arena, const MachineSpeed& speed, AfterNode&& after_node) {
    const PlanProfile profile = describe_plan(name, plan, arena);
    for (NodeId id = 0; id < plan.graph.node_count(); ++id) {
      const NodeProfile& node = profile.nodes[id];
      const Node& of_graph = plan.graph.node(id);
      const double seconds = node_seconds(plan.graph, of_graph, speed);
      if (node.phase == StepPhase::kUpdate) stage.update_seconds += seconds;
      else add_node(node, seconds, exchange_of(plan.graph, of_graph));
      after_node(id);
    }
  }
  void close() { is_closed_ = true; }
  // What follows belongs to the backward pass.
  void begin_backward() { passed_loss_ = is_closed_ = true; }

  StageWork stage;

 private:
  void add_node(const NodeProfile& node, double seconds, const Traffic& exchange) {
    if (node.phase == StepPhase::kBackward || node.phase == StepPhase::kBoth) passed_loss_ = true;
    std::vector<WorkItem>& items = passed_loss_ ? stage.backward : stage.forward;
    const std::string block = block_name(node.module);
    // Forward nodes that only the backward pass needs may stand in it.
    if (items.empty() || is_closed_ || items.back().name != block) items.push_back({.name = block});
    items.back().seconds += seconds;
    items.back().exchange = exchange;
    is_closed_ = exchange.exchanges > 0;
  }

  bool is_closed_ = false, passed_loss_ = false;
};

// By chunk, for the slowest batch shape.
std::vector<StepPlans> longest_step(const Trainer& trainer, const MachineSpeed& speed) {
  std::vector<StepPlans> longest;
  double most = -1;
  for (int shape = 0; shape < trainer.plans().shape_count(); ++shape) {
    double seconds = 0;
    std::vector<StepPlans> plans = trainer.plans().step_plans(shape);
    for (const StepPlans& chunk : plans)
      seconds += plan_seconds(chunk.forward, speed) + plan_seconds(chunk.backward, speed);
    if (seconds > most && !plans.empty()) most = seconds, longest = std::move(plans);
  }
  if (longest.empty()) fail_internal("a trainer without plans of its steps");
  return longest;
}

double sent_bytes(const Plan& forward) {
  double bytes = 0;
  for (size_t i = 0;; ++i) {
    const auto found = std::ranges::find(forward.graph.outputs(), stage_output_name(i), &GraphOutput::name);
    if (found == forward.graph.outputs().end()) return bytes;
    bytes += static_cast<double>(forward.graph.value(found->value).type.bytes());
  }
}

// The first chunk that has parameters of a range; its gradients count there.
size_t chunk_of(const ParameterLayout& layout, const TrainedRange& range, size_t chunks) {
  for (size_t chunk = 0; chunk < chunks; ++chunk)
    if (is_in_chunk(layout, range, static_cast<int>(chunk))) return chunk;
  return 0;
}

// Gradients sent together, in order, and the node after which each bucket is complete.
struct SentBucket {
  size_t values;  // of the range that it is a part of
  Slice part;
  NodeId last_writer;
};

std::vector<SentBucket> sent_buckets(const Plan& plan, const Trainer& trainer) {
  if (!trainer.options().accumulates()) return {};
  const ParameterLayout& layout = trainer.state().layout();
  const bool is_held = !trainer.state().has_whole_gradient();
  const std::vector<GradientBucket> buckets = is_held ? trainer.plans().buckets() : gradient_buckets(layout);
  std::vector<NodeId> last;
  if (is_held)
    for (const HeldBucket& bucket : held_buckets(plan)) last.push_back(bucket.ready);
  else last = last_writers(plan, layout, buckets);
  std::vector<SentBucket> sent;
  for (size_t i = 0; i < buckets.size(); ++i)
    sent.push_back({.values = static_cast<size_t>(layout.ranges()[buckets[i].range].count),
        .part = {static_cast<size_t>(buckets[i].first), static_cast<size_t>(buckets[i].count)},
        .last_writer = last[i]});
  std::ranges::stable_sort(sent, {}, &SentBucket::last_writer);
  return sent;
}

// For one process, with all its micro-batches and the update.
double estimated_step_seconds(const Trainer& trainer, const MachineSpeed& speed) {
  double seconds = plan_seconds(trainer.plans().apply_plan(), speed);
  for (const StepPlans& plans : longest_step(trainer, speed))
    seconds += static_cast<double>(trainer.options().accumulate_steps) *
               (plan_seconds(plans.forward, speed) + plan_seconds(plans.backward, speed));
  return seconds;
}

class RankReader {
 public:
  RankReader(const Trainer& trainer, const MachineSpeed& speed, const RankLayout& layout)
      : trainer_(trainer), speed_(speed), layout_(layout), shards_(trainer.options().shards),
        adds_early_(adds_early(layout)), plans_(longest_step(trainer, speed)) {}

  static bool adds_early(const RankLayout& layout) { return layout.tensor == 1 && layout.pipeline == 1; }

  RankStages read() {
    RankStages rank{.micro_batches = shards_.count() * trainer_.options().accumulate_steps,
        .divides_update = trainer_.state().divides_moments()};
    for (size_t chunk = 0; chunk < plans_.size(); ++chunk) rank.stages.push_back(read_stage(chunk));
    return rank;
  }

 private:
  GradientTraffic gradient(size_t values, Slice part, size_t after) const {
    // With ZeRO stage 2 ranks add every shard's gradient; otherwise each adds its shards first.
    const bool each_shard = trainer_.state().divides_gradients();
    const int64_t rounds = each_shard ? shards_.count() : 1;
    const ShardShare of_round{each_shard ? layout_.data : shards_.shards, 0, layout_.data};
    const Traffic one = reduce_scatter_traffic(values, part, of_round);
    Traffic traffic;
    for (int64_t round = 0; round < rounds; ++round) traffic += one;
    return {.traffic = traffic,
        .add_seconds = static_cast<double>(rounds) * added_bytes(values, part, of_round) / speed_.bandwidth,
        .wait_seconds = adds_early_ ? kLook * static_cast<double>(traffic.exchanges) : 0,
        .after = after};
  }

  // Seconds for shards beside their passes: each but the first is added to another, and all but the last are moved and
  // cleared; with a divided update also the norm of its slice.
  double seconds_of_shards(double gradient_bytes) const {
    constexpr double kPasses = 6;
    const double norm = trainer_.state().divides_moments() ? gradient_bytes / layout_.data : 0;
    return (static_cast<double>(shards_.count() - 1) * kPasses * gradient_bytes + norm) / speed_.bandwidth;
  }

  StageWork read_stage(size_t chunk) const {
    const auto& [forward, backward] = plans_[chunk];
    StageItems items;
    StageWork& stage = items.stage;
    const std::vector<SentBucket> buckets = adds_early_ ? sent_buckets(*forward, trainer_) : std::vector<SentBucket>{};
    size_t sent = 0;
    const auto send_until = [&](NodeId node) {
      for (; sent < buckets.size() && buckets[sent].last_writer <= node; ++sent) {
        items.close();
        stage.gradients.push_back(gradient(buckets[sent].values, buckets[sent].part, stage.backward.size()));
      }
    };
    items.add(*forward, backward ? "train.forward" : "train", trainer_.arena(), speed_, send_until);
    if (backward) {
      items.begin_backward();
      items.add(*backward, "train.backward", trainer_.arena(), speed_, [](NodeId) {});
      stage.sent_bytes = sent_bytes(*forward);
    }
    send_until(std::numeric_limits<NodeId>::max());
    const ParameterLayout& parameters = trainer_.state().layout();
    double own_bytes = 0;
    for (const TrainedRange& range : parameters.ranges()) {
      if (chunk_of(parameters, range, plans_.size()) != chunk) continue;
      const auto count = static_cast<size_t>(range.count);
      if (!adds_early_) stage.gradients.push_back(gradient(count, {0, count}, stage.backward.size()));
      stage.gather += gather_slices_traffic(count, layout_.data);
      own_bytes += 4.0 * static_cast<double>(count);
    }
    const auto buffers = static_cast<size_t>(parameters.stored_count() - parameters.buffer_offset());
    stage.counts = sum_everywhere_traffic(kLossTokensStops + buffers, {shards_.shards, 0, layout_.data});
    const double part = own_bytes / std::max(4.0 * static_cast<double>(parameters.trained_count()), 1.0);
    stage.update_seconds += (plans_.size() == 1 ? 1 : part) * plan_seconds(trainer_.plans().apply_plan(), speed_);
    stage.update_seconds += seconds_of_shards(own_bytes);
    return stage;
  }

  const Trainer& trainer_;
  const MachineSpeed speed_;
  const RankLayout layout_;
  const ShardShare shards_;
  const bool adds_early_;
  const std::vector<StepPlans> plans_;
};
}  // namespace

PlanAnswer plan_memory(const PlanRequest& request) {
  std::unique_ptr<SessionTask> own;
  std::unique_ptr<SessionTask>& task = request.task ? *request.task : own;
  const bool is_open = task != nullptr;
  if (is_open) task->set_batches(request.config);
  else task = task_actions(request.config).make(request.config);
  // Without its folder a task on labelled texts assumes the configuration's sizes.
  if (task_kind(request.config) != TaskKind::kTexts) check_first_model(request.config);
  PlanAnswer answer;
  const DataAtHand data = task->data_at_hand(request.exact);
  if (data.read) {
    if (!is_open) task->open("");
    task->prepare(Capacity::kMayBeShort);
  } else {
    answer.assumption = task->assume(data);
  }
  const uint64_t resident =
      request.resident.value_or(data.read ? task->forecast().resident : resident_bytes() + task->assumed_bytes());
  const auto make_session = [&](const Config& config) {
    std::unique_ptr<Session> session = task->make_session(config, false);
    session->finish_planning(resident);
    return session;
  };
  // Plans made with real data are those of a run.
  const bool as_planned = data.read && !request.resident;
  const std::unique_ptr<Session> made = as_planned ? nullptr : make_session(request.config);
  const Session* session = as_planned ? &task->planned() : made.get();
  answer.forecast = as_planned ? task->forecast() : forecast_memory(resident, session->store);
  describe(*session, answer);
  answer.batches = task->batches_text(*session);
  answer.shorter_key = task->shorter_key();
  answer.batch_key = task->batch_key() == &DataConfig::batch_tokens ? "batch_tokens" : "batch_size";
  if (request.visit) request.visit(*session->trainer);
  if (request.speed) answer.step_seconds = estimated_step_seconds(*session->trainer, *request.speed);
  if (request.visit || request.speed) return answer;
  const int64_t least = task->least(), most = std::min(task->most(), task->most_planned());
  const int64_t copies = session->store.device().is_host() ? task->host_batches() : 0;
  const auto kept = [&](const MemoryForecast& of) { return copies * of.bytes(MemoryKind::kBatch); };
  const uint64_t kept_now = as_planned ? std::min(resident, kept(answer.forecast)) : 0;  // these are in `resident`
  answer.largest_batch = largest_fit(least, most, [&](int64_t size) {
    Config other = request.config;
    other.data.*task->batch_key() = size;
    other.train.accumulate_steps /= request.micro_batches;
    const MemoryForecast forecast = forecast_memory(resident, make_session(other)->store);
    const uint64_t peak = forecast.peak() - kept_now + kept(forecast);
    if (size == least) answer.least_peak = peak;
    return peak <= request.memory;
  });
  answer.all_fit = answer.largest_batch >= task->most();
  answer.more_may_fit = !answer.all_fit && answer.largest_batch >= most;
  return answer;
}

RankStages stages_of_rank(const Trainer& trainer, const MachineSpeed& speed, const RankLayout& layout) {
  return RankReader(trainer, speed, layout).read();
}

TrainingStep step_of_ranks(std::vector<RankStages> ranks, const RankLayout& layout) {
  TrainingStep step{.layout = layout,
      .micro_batches = ranks.front().micro_batches,
      .adds_early = RankReader::adds_early(layout),
      .divides_update = ranks.front().divides_update};
  for (int chunk = 0; chunk < layout.interleave; ++chunk)
    for (RankStages& rank : ranks) step.stages.push_back(std::move(rank.stages[chunk]));
  return step;
}

int count_layers(const ParameterLayout& layout) {
  std::set<std::string> layers;
  for (const ParameterSlot& slot : layout.trained())
    if (const std::string_view layer = block_path(slot.spec.name); !layer.empty()) layers.emplace(layer);
  return static_cast<int>(layers.size());
}
}  // namespace linnet
