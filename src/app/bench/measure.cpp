#include <algorithm>
#include <chrono>
#include <ctime>
#include <thread>
#include "app/bench/bench.h"
#include "base/numbers.h"
#include "base/process.h"
#include "base/text.h"
#include "base/timeline.h"
#include "engine/ir/op.h"
#include "formats/safetensors.h"
#include "training/trainer/learner.h"

namespace linnet {
namespace {
constexpr int64_t kTogether = 16, kWarmUp = 32;
constexpr size_t kMostResident = size_t{64} << 20;  // most bytes of a device-resident dataset

double processor_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

TrainerOptions trainer_options(const Workload& workload, const MeasureOptions& measured) {
  TrainerOptions options;
  options.optimizer = workload.optimizer;
  options.threads = measured.threads;
  options.passes.precision = measured.precision, options.passes.int8 = measured.int8;
  options.passes.attention_precision = measured.attention_precision;
  if (measured.precision == Precision::kBf16 && !measured.store_fp32) options.passes.storage_type = DType::kBF16;
  options.backend = measured.backend;
  options.recompute = measured.recompute;
  options.memory = measured.memory, options.memory_beside = measured.memory_beside;
  return options;
}

void tell_recomputation(const Trainer& trainer, Measurement& m) {
  m.saved_mb = static_cast<double>(saved_bytes(trainer.plans().by_name().at("train.0")->graph)) / 1e6;
  m.extra_work = trainer.plans().largest_fit().extra_work, m.recomputation = trainer.plans().largest_fit().text();
}

class Measuring {
 public:
  // `one_by_one`: devices get each batch from the host too.
  Measuring(const Workload& workload, const MeasureOptions& options, bool one_by_one = false)
      : workload_(workload), options_(options), resident_(one_by_one ? ResidentOptions{} : resident_options()),
        began_(now()),
        learner_(*workload.model, workload.loss, trainer_options(workload, options), resident_, workload.groups),
        planning_seconds_(now() - began_), resident_bytes_(resident_bytes()) {
    if (!is_resident()) return;
    for (const WorkloadInput& input : workload.inputs) learner_.resident().stage(input.name, input.data);
  }

  Measurement run(uint64_t resident_at_start) {
    Measurement m;
    m.idle_watts = idle_watts();
    m.first_loss = step();
    m.first_step_seconds = process_seconds();
    step();  // warm up caches and clocks
    // A device runs ahead of the host, as in training: several steps are timed together.
    int64_t together = on_gpu() ? kTogether : 1;
    if (is_resident()) together *= learner_.resident().steps_per_graph();
    if (on_gpu()) steps(std::max(kWarmUp, together));
    std::vector<double> seconds, processor;
    const double joules = device().joules();
    for (const double began = now(); m.steps < options_.least || now() - began < options_.seconds;
         m.steps += together) {
      const double before = now(), used = processor_seconds();
      m.last_loss = steps(together);
      seconds.push_back((now() - before) / static_cast<double>(together));
      processor.push_back((processor_seconds() - used) / static_cast<double>(together));
    }
    if (joules >= 0)
      m.joules_per_unit = (device().joules() - joules) / (static_cast<double>(m.steps) * workload_.units_per_step);
    m.seconds_per_step = median(seconds), m.processor_seconds = median(processor);
    m.median = workload_.units_per_step / m.seconds_per_step;
    m.max = workload_.units_per_step / *std::ranges::min_element(seconds);
    m.min = workload_.units_per_step / *std::ranges::max_element(seconds);
    if (options_.parts && workload_.forward_apart) measure_parts(m);
    m.predicted_mb = static_cast<double>(learner_.memory_bytes()) / 1e6;
    // All planned memory has been touched by now.
    m.program_mb = on_gpu() ? 0
                            : (static_cast<double>(resident_bytes_) - static_cast<double>(resident_at_start)) / 1e6 -
                                  m.predicted_mb;
    m.memory_mb = on_gpu() ? m.predicted_mb : static_cast<double>(peak_resident_bytes() - resident_at_start) / 1e6;
    m.planning_seconds = planning_seconds_, m.choices = device().choices();
    tell_recomputation(trainer(), m);
    m.parameters = trainer().state().layout().trained_count();
    m.flop_per_step = graph_flops(single_graph(trainer().state().layout(), workload_.loss, {}));
    return m;
  }

  double step() { return steps(1); }

  double steps(int64_t count) {
    if (is_resident()) return resident_steps(count);
    SubmittedStep last{};
    for (int64_t i = 0; i < count; ++i) {
      load_batch();
      last = learner_.submit(workload_.learning_rate);
    }
    return learner_.collect(last).loss;
  }

  // One chunk; includes the upload of its order and the download of its losses.
  double resident_steps(int64_t count) {
    ResidentSteps& steps = learner_.resident();
    const std::vector<float> rates(count, static_cast<float>(workload_.learning_rate));
    std::vector<int32_t> order;
    for (int64_t i = 0; i < count; ++i, next_ = (next_ + 1) % workload_.batches)
      for (int64_t row = 0; row < steps.rows(); ++row)
        order.push_back(static_cast<int32_t>(next_ * steps.rows() + row));
    steps.begin_chunk(order, rates, done_ + 1);
    steps.run(count);
    done_ += count;
    return steps.reports().back().loss;
  }

  // Adds a step's seconds of each node.
  void add_step(std::vector<double>& seconds) {
    load_batch();
    trainer().plans().train_executor(0).run_timed(trainer().pool(), seconds);
  }

  Trainer& trainer() { return learner_.trainer(); }
  const Graph& graph() { return trainer().plans().train_executor(0).plan().graph; }

 private:
  // On a device, if data are small: all batches of an input are its dataset.
  ResidentOptions resident_options() const {
    ResidentOptions options{.data = {}, .steps_per_chunk = 256, .steps_per_graph = 16};
    size_t bytes = 0;
    for (const WorkloadInput& input : workload_.inputs) {
      const auto sizes = input.type.shape.sizes();
      bytes += input.data.size();
      if (!on_gpu() || sizes.size() < 2 || sizes[1] != workload_.inputs[0].type.shape[1]) return {};
      TensorType type{input.type.dtype, Shape(sizes.subspan(1))};
      type.shape.set(0, sizes[0] * sizes[1]);
      options.data.push_back({input.name, type});
    }
    return bytes <= kMostResident ? options : ResidentOptions{};
  }
  bool is_resident() const { return !resident_.data.empty(); }

  Device& device() const { return *options_.backend->device; }
  bool on_gpu() const { return !device().is_host(); }

  double idle_watts() const {
    const double before = device().joules(), began = now();
    if (before < 0) return 0;
    std::this_thread::sleep_for(std::chrono::seconds(1));
    return (device().joules() - before) / (now() - began);
  }

  void load_batch() {
    for (const WorkloadInput& input : workload_.inputs) {
      const size_t bytes = input.data.size() / static_cast<size_t>(workload_.batches);
      learner_.set(input.name, std::span(input.data).subspan(static_cast<size_t>(next_) * bytes, bytes));
    }
    next_ = (next_ + 1) % workload_.batches;
  }

  // Forward: the evaluation plan. Update: clipping and optimizer, timed around their nodes.
  void measure_parts(Measurement& m) {
    std::vector<double> forward, update;
    if (is_resident()) {  // set the inputs of single steps
      load_batch();
      learner_.submit(workload_.learning_rate);
    }
    for (int i = 0; i < 3; ++i) {
      load_batch();
      const double before = now();
      learner_.evaluate();
      forward.push_back(now() - before);
      std::vector<double> seconds;
      add_step(seconds);
      double sum = 0;
      for (NodeId id = 0; id < graph().node_count(); ++id) {
        const std::string name = graph().node(id).op->name;
        if (name == "sum_of_squares" || name == "optimizer_step") sum += seconds[id];
      }
      update.push_back(sum);
    }
    m.forward_seconds = median(forward), m.update_seconds = median(update);
  }

  const Workload& workload_;
  const MeasureOptions& options_;
  const ResidentOptions resident_;
  const double began_;
  SingleShapeLearner learner_;
  const double planning_seconds_;
  const uint64_t resident_bytes_;  // RSS with all planned memory touched
  int64_t next_ = 0, done_ = 0;    // next batch; resident steps
};

// Plans a training step like SingleShapeLearner, within options.memory if set, without allocating. Returns its bytes
// too.
std::pair<Measurement, size_t> plan_only(const Workload& workload, const MeasureOptions& options) {
  const double began = now();
  const ParameterLayout layout(*workload.model, workload.groups);
  Store store(*options.backend);
  const SharedRegions shared = add_shared_regions(store);
  TrainerOptions training = trainer_options(workload, options);
  training.verify_plans = false;
  Trainer trainer(layout, store, shared, training);
  for (const WorkloadInput& input : workload.inputs)
    store.declare(input.name, MemoryKind::kBatch, input.data.size() / static_cast<size_t>(workload.batches));
  if (options.memory > 0) {
    trainer.plans().add_evaluation_shape(workload.loss);
    trainer.plans().plan_training_within_memory(options.memory_beside);
  } else {
    trainer.plans().add_shape(workload.loss);
  }
  const size_t bytes = store.total_bytes();
  Measurement m;
  m.planning_seconds = now() - began, m.predicted_mb = static_cast<double>(bytes) / 1e6;
  m.parameters = layout.parameter_count();
  tell_recomputation(trainer, m);
  return {m, bytes};
}
}  // namespace

Measurement measure(const Workload& workload, const MeasureOptions& options, uint64_t resident_at_start) {
  return Measuring(workload, options).run(resident_at_start);
}

Measurement plan_step(const Workload& workload, const MeasureOptions& options) {
  auto [m, bytes] = plan_only(workload, options);
  m.program_mb = static_cast<double>(options.memory_beside) / 1e6;
  bytes += options.memory_beside;
  if (options.memory > 0 && bytes > options.memory)
    fail_user(workload.name, " does not fit within ", options.memory, " bytes: it needs at least ", bytes);
  return m;
}

size_t planned_bytes(const Workload& workload, const MeasureOptions& options) {
  MeasureOptions unlimited = options;
  unlimited.memory = 0;
  return plan_only(workload, unlimited).second;
}

std::string profile(const Workload& workload, const MeasureOptions& options) {
  struct Row {
    double seconds = 0, flops = 0;
    int calls = 0;
  };
  Measuring measuring(workload, options, true);
  measuring.step();  // sets the step's inputs
  measuring.step();
  int64_t steps = 0;
  std::vector<double> seconds;
  for (const double began = now(); steps < options.least || now() - began < options.seconds; ++steps)
    measuring.add_step(seconds);
  std::map<std::string, Row> rows;
  Row all;
  for (NodeId id = 0; id < measuring.graph().node_count(); ++id) {
    const Node& node = measuring.graph().node(id);
    // Products are told apart by their shapes.
    std::string key = node.op->name;
    const double flops = node_flops(measuring.graph(), node);
    if (key == "matmul") key += " " + measuring.graph().value(node.in[0]).type.shape.text() + " " + node.attrs.text();
    for (Row* row : {&rows[key], &all}) {
      row->seconds += seconds[id] / static_cast<double>(steps);
      row->flops += flops;
      ++row->calls;
    }
  }
  std::vector<std::pair<std::string, Row>> sorted(rows.begin(), rows.end());
  std::ranges::stable_sort(sorted, [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  sorted.emplace_back("all", all);
  std::string text = "  ms/step  share  calls  GFLOP/s\n";
  for (const auto& [key, row] : sorted) {
    text += printed("%9.3f %5.1f%% %6d %8.0f  ", row.seconds * 1e3, 100 * row.seconds / all.seconds, row.calls,
        row.flops / row.seconds * 1e-9);
    text += key + "\n";
  }
  return text;
}

ProfileSummary profiled(Trainer& trainer, int64_t steps, FunctionRef<void()> step) {
  trainer.profile({.wait = 0, .warmup = 2, .active = steps});
  ProfileSummary found;
  trainer.profiler()->write_files = false;
  trainer.profiler()->on_summary = [&](const ProfileSummary& summary) { found = summary; };
  while (!trainer.profiler()->is_done()) step();
  return found;
}

ProfileSummary profile_layers(const Workload& workload, const MeasureOptions& options, int64_t steps) {
  Measuring measuring(workload, options, true);
  return profiled(measuring.trainer(), steps, [&] { measuring.step(); });
}

void write_data(const Workload& workload, const std::string& path) {
  const auto tensors = mapped(workload.inputs, [](const WorkloadInput& input) {
    return SafetensorsTensor{input.name, input.type, input.data.data()};
  });
  save_safetensors(path, tensors, {{"workload", workload.name}});
}
}  // namespace linnet
