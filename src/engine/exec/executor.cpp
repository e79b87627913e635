#include "engine/exec/executor.h"
#include <algorithm>
#include <cstring>
#include <utility>
#include "base/fail.h"
#include "base/numbers.h"
#include "base/process.h"
#include "base/timeline.h"
#include "engine/ir/op.h"

namespace linnet {
namespace {
template <class Outputs> auto& named_output(Outputs& outputs, const std::string& name) {
  if (auto* found = find_value(outputs, name)) return *found;
  fail_internal("the plan has no output ", name);
}

constexpr size_t kAlignment = 256;
constexpr int64_t kKept = Executor::kKept;
constexpr size_t kSmall = 4096;  // bytes of an output that comes home by itself
}  // namespace

// A plan's run on a device: the batch is copied over and the kernels are queued, the first time one by one (when
// libraries choose and compile), from the second time on as one recording. Small outputs (losses, counts, norms) are
// copied to the host after every run and stay readable for kKept runs; a large one is copied on request.
class DeviceRun {
 public:
  // `outputs`: on the device.
  DeviceRun(const Plan& plan, const Store& store, const std::map<std::string, TensorView>& outputs)
      : device_(store.device()) {
    find_batch(plan, store);
    if (slot_bytes_ > 0) staging_ = device_.allocate_host(kSlots * slot_bytes_);
    find_outputs(outputs);
  }
  ~DeviceRun() {
    if (staging_) device_.release_host(staging_);
    if (mirror_) device_.release_host(mirror_);
  }
  DeviceRun(const DeviceRun&) = delete;
  DeviceRun& operator=(const DeviceRun&) = delete;

  // Returns as soon as the work is queued; the host may then write the next batch. `times`: how often `queue_kernels`
  // queues the plan; above 1 it must have no batch. Each number has a recording, so use few. `replay` false: queues
  // kernels one by one, even if there is a recording. Returns the run's number, from 1 on.
  int64_t run(FunctionRef<void()> queue_kernels, int64_t times, bool replay) {
    if (times > 1 && !batch_.empty()) fail_internal("several runs on one batch");
    push_batch();
    static const bool queues_anew = switched_off("LINNET_CUDA_GRAPHS");
    if (++runs_ == 1 || !replay || queues_anew) {
      queue_kernels();
    } else {
      std::unique_ptr<Recording>& recording = recordings_[times];
      if (!recording) recording = device_.record(queue_kernels);
      device_.replay(*recording);
    }
    pull_small_outputs();
    return runs_;
  }

  void push_batch() {
    if (batch_.empty()) return;
    std::byte* slot = staging_ + slot_ * slot_bytes_;
    device_.reached(pushed_[slot_]);
    for (const Range& range : batch_) {
      std::memcpy(slot + range.staged, range.host, range.bytes);
      device_.upload(range.device, slot + range.staged, range.bytes);
    }
    pushed_[slot_] = device_.mark();
    slot_ = (slot_ + 1) % kSlots;
  }

  // Waits for that run; 0: the last. See Executor::output.
  const TensorView& output(const std::string& name, int64_t run) {
    Output& output = named_output(outputs_, name);
    if (run == 0) run = runs_;
    if (run <= runs_ - (output.is_small ? kKept : 1) || run > runs_)
      fail_internal("output ", name, " of run ", run, " was asked for after ", runs_, " runs");
    if (output.is_small) {
      const auto kept = static_cast<size_t>(run % kKept);
      device_.reached(done_[kept]);
      return output.on_host[kept];
    }
    TensorView& host = output.on_host[0];
    if (!output.fresh) device_.download(host.as<std::byte>(), output.on_device.as<std::byte>(), host.type.bytes());
    output.fresh = true;
    device_.wait();
    return host;
  }

 private:
  struct Range {
    const std::byte* host;
    std::byte* device;
    size_t bytes, staged;  // staged: offset within a slot
  };
  struct Output {
    TensorView on_device;
    std::array<TensorView, kKept> on_host;  // by run; a large one has only the first
    bool is_small;
    bool fresh = false;  // of a large one
  };
  static constexpr size_t kSlots = 4;  // batches that the host may be ahead

  // One range per region of batches: from the plan's first input in it to the end of the last.
  void find_batch(const Plan& plan, const Store& store) {
    std::map<RegionId, std::pair<size_t, size_t>> ranges;
    for (const GraphInput& input : plan.graph.inputs()) {
      const Location& location = plan.location[input.value];
      if (store.regions()[location.region].kind != MemoryKind::kBatch) continue;
      if (contains(plan.graph.updates(), input.value, &StateUpdate::state))
        fail_internal("state ", input.name, " lies among the batches");
      const size_t end = location.offset + plan.graph.value(input.value).type.bytes();
      auto [range, is_new] = ranges.try_emplace(location.region, location.offset, end);
      if (!is_new)
        range->second = {std::min(range->second.first, location.offset), std::max(range->second.second, end)};
    }
    for (const auto& [region, range] : ranges) {
      const auto [begin, end] = range;
      batch_.push_back({store.data(region) + begin, store.location(region) + begin, end - begin, slot_bytes_});
      slot_bytes_ += round_up(end - begin, kAlignment);
    }
  }

  void find_outputs(const std::map<std::string, TensorView>& outputs) {
    size_t bytes = 0;
    for (const auto& [name, view] : outputs) {
      Output& output = outputs_[name];
      output.on_device = view;
      output.is_small = view.type.bytes() <= kSmall;
      bytes += round_up(view.type.bytes(), kAlignment) * (output.is_small ? kKept : 1);
    }
    if (bytes == 0) return;
    mirror_ = device_.allocate_host(bytes);
    std::byte* location = mirror_;
    for (auto& [name, output] : outputs_)
      for (int64_t i = 0; i < (output.is_small ? kKept : 1); ++i) {
        TensorView& host = output.on_host[i] = output.on_device;
        host.data = std::exchange(location, location + round_up(output.on_device.type.bytes(), kAlignment));
      }
  }

  void pull_small_outputs() {
    const auto kept = static_cast<size_t>(runs_ % kKept);
    for (auto& [name, output] : outputs_) {
      output.fresh = false;
      const TensorView& from = output.on_device;
      if (output.is_small)
        device_.download(output.on_host[kept].as<std::byte>(), from.as<std::byte>(), from.type.bytes());
    }
    done_[kept] = device_.mark();
  }

  Device& device_;
  std::vector<Range> batch_;
  std::byte* staging_ = nullptr;  // kSlots of slot_bytes_
  size_t slot_bytes_ = 0, slot_ = 0;
  std::array<int64_t, kSlots> pushed_{};  // marks: the slot may be written again
  std::map<std::string, Output> outputs_;
  std::byte* mirror_ = nullptr;  // of all outputs
  int64_t runs_ = 0;
  std::array<int64_t, kKept> done_{};                         // marks, by run
  std::map<int64_t, std::unique_ptr<Recording>> recordings_;  // by times
};

Executor::Executor(const Plan& plan, const Store& store, const SharedRegions& shared)
    : plan_(&plan), store_(store), device_(store.device()) {
  const Graph& graph = plan.graph;
  const auto view = [&](ValueId id) -> TensorView {
    const Location& location = plan.location[id];
    return {store.location(location.region) + location.offset, graph.value(id).type, root_of(graph, id).strides};
  };
  operands_.reserve(sum_of<size_t>(graph.nodes(), [](const Node& node) { return node.in.size() + node.out.size(); }));
  steps_.reserve(graph.nodes().size());
  for (NodeId id = 0; id < graph.node_count(); ++id) {
    const Node& node = graph.node(id);
    const size_t in = operands_.size();
    for (ValueId value : node.in) operands_.push_back(view(value));
    for (ValueId value : node.out) operands_.push_back(view(value));
    const size_t* own = find_value(plan.workspace_in_arena, id);
    std::byte* workspace = own ? store.location(shared.arena) + *own : store.location(shared.workspace);
    steps_.push_back({&node, plan.kernels[id], in, node.in.size(), in + node.in.size(), node.out.size(), workspace});
  }
  for (const StateUpdate& copy : plan.copies) copies_.push_back({view(copy.value), view(copy.state)});
  for (const GraphOutput& output : graph.outputs()) outputs_[output.name] = view(output.value);
  if (!plan.aside.empty()) order_asides();
  if (!device_.is_host()) device_run_ = std::make_unique<DeviceRun>(plan, store, outputs_);
}

Executor::Executor(Executor&& other) noexcept = default;
Executor::~Executor() = default;

// A node waits for an aside node that writes memory it uses, or reads memory it writes.
void Executor::order_asides() {
  using Bytes = std::pair<const std::byte*, const std::byte*>;
  struct Touched {
    std::vector<Bytes> read, written;
  };
  const auto bytes_of = [](const TensorView& view) -> Bytes {
    const std::byte* begin = view.as<std::byte>();
    return {begin, begin + strided_extent(view.shape(), view.strides) * dtype_size(view.type.dtype)};
  };
  const auto touched_by = [&](const Step& step) {
    const std::span<const TensorView> operands = operands_;
    Touched touched{mapped(operands.subspan(step.in, step.in_count), bytes_of),
        mapped(operands.subspan(step.out, step.out_count), bytes_of)};
    const auto [in, out] = types_of(plan_->graph, *step.node);
    const KernelQuery query{*step.node, in, out, plan_->threads, &device_};
    if (step.kernel->workspace)
      touched.written.emplace_back(step.workspace, step.workspace + step.kernel->workspace(query));
    return touched;
  };
  const auto meet = [](const std::vector<Bytes>& some, const std::vector<Bytes>& others) {
    return std::ranges::any_of(some, [&](const Bytes& a) {
      return std::ranges::any_of(others, [&](const Bytes& b) { return a.first < b.second && b.first < a.second; });
    });
  };
  std::vector<Touched> running;  // by number
  int64_t waited = -1;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Touched own = touched_by(steps_[i]);
    if (plan_->aside[i]) {
      steps_[i].aside = asides_++;
      running.push_back(own);
      continue;
    }
    for (int64_t number = asides_ - 1; number > waited; --number) {
      const Touched& other = running[number];
      if (!meet(own.written, other.read) && !meet(own.written, other.written) && !meet(own.read, other.written))
        continue;
      steps_[i].after = waited = number;
    }
  }
}

void Executor::run_step(const Step& step, ThreadPool& pool) const {
  step.kernel->run({*step.node, {operands_.data() + step.in, step.in_count},
      {operands_.data() + step.out, step.out_count}, step.workspace, pool, &device_, store_.groups().tensor});
  device_.launched([&] { return plan_->graph.where_text(static_cast<NodeId>(&step - steps_.data())); });
}

void Executor::run_all(ThreadPool& pool, AfterNode after) const {
  if (Timeline::is_active()) return run_recorded(pool, after);
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    if (step.after >= 0) device_.after_aside(step.after);
    if (step.aside >= 0) device_.aside(step.aside, [&] { run_step(step, pool); });
    else run_step(step, pool);
    after(static_cast<NodeId>(i));
  }
  if (asides_ > 0) device_.after_aside(asides_ - 1);
  copy_updates();
}

// A node begins when the one before it ends, so that the times of all nodes add up to the run's.
void Executor::run_recorded(ThreadPool& pool, AfterNode after) const {
  int64_t began = Timeline::now();
  for (size_t i = 0; i < steps_.size(); ++i) {
    const auto node = static_cast<int64_t>(i);
    Timeline::set_work(plan_, node);
    int64_t ended = 0;
    if (device_.is_host()) {
      run_step(steps_[i], pool);
      ended = Timeline::now();
    } else {
      ended = began + static_cast<int64_t>(1e9 * device_.timed([&] { run_step(steps_[i], pool); }));
    }
    Timeline::record({.begin = began, .end = ended, .plan = plan_, .index = node});
    began = ended;
    after(static_cast<NodeId>(i));
  }
  Timeline::set_work(nullptr, -1);
  copy_updates();
  if (!copies_.empty() && device_.is_host())
    Timeline::record({.begin = began, .end = Timeline::now(), .name = "copy states"});
}

void Executor::copy_updates() const {
  for (const Copy& copy : copies_)
    device_.copy(copy.to.as<std::byte>(), copy.from.as<std::byte>(), copy.to.type.bytes());
}

void Executor::check(const ThreadPool& pool) const {
  if (pool.size() > plan_->threads) fail_internal("a plan for ", plan_->threads, " threads was given ", pool.size());
}

void Executor::run(ThreadPool& pool, AfterNode after) const {
  check(pool);
  if (device_run_) fail_internal("nodes that a device runs are not observed");
  run_all(pool, after);
}

int64_t Executor::run_together(ThreadPool& pool, int64_t times) const {
  check(pool);
  const auto run_each = [&] {
    for (int64_t i = 0; i < times; ++i) run_all(pool, [](NodeId) {});
  };
  if (device_run_) return device_run_->run(run_each, times, !Timeline::is_active());
  run_each();
  return 0;
}

void Executor::run_timed(ThreadPool& pool, std::vector<double>& seconds) const {
  check(pool);
  seconds.resize(steps_.size());
  if (device_run_) device_run_->push_batch();
  for (size_t i = 0; i < steps_.size(); ++i) seconds[i] += device_.timed([&] { run_step(steps_[i], pool); });
  copy_updates();
}

const TensorView& Executor::output(const std::string& name, int64_t run) const {
  if (device_run_) return device_run_->output(name, run);
  return named_output(outputs_, name);
}
}  // namespace linnet
