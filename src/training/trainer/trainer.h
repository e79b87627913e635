// Training steps over planned memory. A trainer declares its regions in a store, plans one step for each batch shape,
// and then only runs plans: between bind() and the end it allocates nothing.
//
//   Trainer trainer(layout, store, shared, options);
//   int shape = trainer.add_shape(loss);      // once per bucket
//   store.allocate();  trainer.bind();  trainer.initialize();
//   StepReport report = trainer.step(batch, learning_rate, step);
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "data/examples/batch.h"
#include "distributed/comm/shard_sum.h"
#include "engine/exec/executor.h"
#include "engine/ops/sharding.h"
#include "engine/passes/passes.h"
#include "engine/passes/tensor_parallel.h"
#include "engine/plan/plan.h"
#include "engine/plan/state_names.h"
#include "engine/profile/step_profiler.h"
#include "models/nn/model_store.h"
#include "training/trainer/fit_memory.h"
#include "training/trainer/ownership.h"
#include "training/trainer/range_update.h"
#include "training/trainer/step_graphs.h"

namespace linnet {

class PipelineStage;  // training/trainer/pipeline_stage.h

struct TrainerOptions {
  OptimizerAttrs optimizer;
  int64_t accumulate_steps = 1;
  // A step is this many batches, or groups of accumulate_steps, whose gradients are added in the order of the shard
  // tree; see training/trainer/sharded_step.h.
  ShardShare shards = {};
  // Tensor parallel: which rank of its group this is. The layout has the division (models/nn/tensor_parallel.h), losses
  // are those of the rank, and whoever runs steps is in the group's TensorGroupScope.
  TensorRank tensor = {};
  // Pipeline parallel: which stages this rank has. The layout has them (models/nn/pipeline_parallel.h), the trainer
  // cuts losses into them, and whoever runs steps and evaluations is in a PipelineScope. A step's micro-batches are its
  // accumulate_steps; a multiple of the ranks where each has several stages.
  PipelineRank pipeline = {};
  // ZeRO (Rajbhandari et al. 2020). Stage 1: each rank has the moments of a part of the parameters
  // (training/trainer/ownership.h), and updates it. Stage 2: and the gradients of that part; others it has only until
  // they were sent. Several accumulate_steps need the whole gradient between them.
  bool divide_moments = false, divide_gradients = false;
  LossScaleOptions loss_scale = {};  // for fp16
  int threads = 1;
  uint64_t seed = 1;  // of initial weights and dropout
  PassOptions passes = {};
  RecomputeMode recompute = RecomputeMode::kAuto;
  // Most bytes to take; 0: no limit. With kAuto, layers are computed again until the step fits. For a
  // SingleShapeLearner: of what it plans (SingleShapeLearner::memory_bytes()). For a session: with what the process
  // holds anyway; on a device, of its memory.
  uint64_t memory = 0;
  uint64_t memory_beside = 0;  // SingleShapeLearner: bytes of `memory` that something else takes
  bool training = true;        // false: only evaluation; no gradients and no moments
  bool verify_plans = true;    // see PlanOptions
  // find_non_finite() reads the graphs that were planned: losses are not traced again after bind().
  bool keep_graphs = false;
  // Of a layout with an owner: the store that has the weights. There is no state "parameters" then.
  const Store* owner = nullptr;
  // For a SingleShapeLearner, which makes the store itself: where it trains (open_backend("cuda")). Otherwise the store
  // says.
  const Backend* backend = &cpu_backend();
  // Which steps are profiled; if it is off, the environment variable LINNET_PROFILE decides.
  ProfileOptions profile = {};
};

struct StepReport {
  double loss;       // mean over the tokens
  double grad_norm;  // of the mean loss, before clipping
  int64_t tokens;
  bool finite;  // false: the parameters were left as they were
  // With a loss scale: what it was, and whether the step was left out because of it: the next ones have a smaller one.
  double loss_scale = 1;
  bool skipped = false;
};

// What products on this processor multiply in where `wanted` is asked for: without bf16 instructions in the current set
// (engine/kernels/isa.h) they stay in fp32.
Precision cpu_precision(Precision wanted);

// From the outputs of a step graph.
StepReport step_report(double loss_sum, double token_count, double sum_of_squares);
// The inputs of a step graph that vary from step to step: control [2], random [4].
void write_control(float* control, double learning_rate, int64_t step);
void write_random(int32_t* random, uint64_t seed, int64_t step, int64_t micro);

// A step that was asked for and whose report was not read yet.
struct SubmittedStep {
  const Executor* executor;
  int64_t run;
};

// What computes a micro-batch: a plan for each pass, or one for both, `forward`.
struct StepPlans {
  const Plan *forward = nullptr, *backward = nullptr;
};

struct LossTotal {
  double sum;
  int64_t tokens;
};

class Trainer {
 public:
  Trainer(const ParameterLayout& layout, Store& store, const SharedRegions& shared, const TrainerOptions& options);
  ~Trainer();

  // Plans training and evaluation of one batch shape. Its inputs must be bound in the store.
  int add_shape(LossFunction loss);
  // Plans the evaluation only; plan_training() may follow.
  int add_evaluation_shape(LossFunction loss);
  // Plans the training of a shape, as options().recompute says. `limit`: most bytes that arena and workspace may take
  // together, with what other plans have made them; where nothing fits, the plan that takes least is made and
  // Fit::fits is false.
  const Fit& plan_training(int shape, std::optional<size_t> limit = {});
  // The same for all shapes, such that options().memory is kept: `others` bytes are taken by what is not planned.
  // Everything else must have been declared in the store.
  void plan_training_within_memory(uint64_t others);
  // Of the shape whose plan takes most.
  const Fit& largest_fit() const;

  void bind();                  // after store.allocate()
  void initialize();            // parameters and constants from the seed
  void initialize_constants();  // alone: before load_parameters(), which sets all parameters

  // One step of one micro-batch. `step` counts from 1.
  StepReport step(int shape, double learning_rate, int64_t step);
  // The same in two: on a device submit() only queues the step, so that the next batch can be made and the next step
  // queued meanwhile, and collect() waits. At most DeviceRun::kKept steps may be on their way; on the CPU one.
  SubmittedStep submit(int shape, double learning_rate, int64_t step);
  StepReport collect(const SubmittedStep& step);
  // The same with the batch as an argument, whose arrays are copied to where the graphs read them; so below.
  StepReport step(const Batch& batch, double learning_rate, int64_t step) {
    return collect(submit(batch, learning_rate, step));
  }
  SubmittedStep submit(const Batch& batch, double learning_rate, int64_t step) {
    load(batch);
    return submit(batch.shape_index, learning_rate, step);
  }
  // Only copies the arrays.
  void load(const Batch& batch) const;
  // What submit() writes for the step to read, alone: for find_non_finite() after steps that were run otherwise.
  void set_step(double learning_rate, int64_t step);
  // Or several: accumulate() each (micro from 0), then apply(), or submit_apply() and later collect().
  void accumulate(int shape, int64_t step, int64_t micro);
  // On the CPU: after(node) is called when a node of train_executor(shape) is done.
  void accumulate(int shape, int64_t step, int64_t micro, Executor::AfterNode after);
  void accumulate(const Batch& batch, int64_t step, int64_t micro) {
    load(batch);
    accumulate(batch.shape_index, step, micro);
  }
  // With a pipeline, what accumulate() has begun is done: then the state "gradient" is that of all micro-batches so
  // far, of the stage's parameters. submit_apply() calls it, unless there are shards.
  void finish_accumulation();
  StepReport apply(double learning_rate, int64_t step) { return collect(submit_apply(learning_rate, step)); }
  SubmittedStep submit_apply(double learning_rate, int64_t step);

  // The loss of a batch without dropout, on the weights evaluation uses.
  LossTotal evaluate(int shape);
  LossTotal evaluate(const Batch& batch) {
    load(batch);
    return evaluate(batch.shape_index);
  }
  // Another output of that graph, as the loss function named it; valid until the next run of any plan.
  const TensorView& evaluation_output(int shape, const std::string& name) const {
    return shapes_[static_cast<size_t>(shape)]->run_evaluate->output(name);
  }

  // The same of a training step; of several micro-batches, of the last one.
  const TensorView& step_output(int shape, const std::string& name) const {
    return shapes_[static_cast<size_t>(shape)]->run_train->output(name);
  }

  // Runs the last micro-batch again, which is still in place, node by node: "file:line: op (in module)" of the first
  // that produced a NaN or an infinity; empty when none did.
  std::string find_non_finite(int shape) const;

  const ParameterLayout& layout() const { return layout_; }
  const TrainerOptions& options() const { return options_; }
  // Of the next step; collect() moves it. Only where options().loss_scale is on.
  const LossScale& loss_scale() const { return loss_scale_; }
  void set_loss_scale(const LossScale& scale) { loss_scale_ = scale; }
  ThreadPool& pool() { return pool_; }
  // What products really multiply in: on a CPU without bf16 instructions not what the options ask for.
  Precision precision() const;
  bool accumulates() const { return options_.accumulate_steps > 1 || is_sharded() || pipeline_; }
  PipelineStage* pipeline() { return pipeline_.get(); }  // null: this process has all layers
  bool is_sharded() const { return options_.shards.shards > 1; }
  const Store& store() const { return store_; }
  // Whether the moments, which state() then does not have as a whole, are divided between ranks: see
  // training/trainer/divided_states.h. On the CPU only.
  bool divides_moments() const { return divides_moments_; }
  bool is_divided(const std::string& state) const { return divides_moments_ && state::is_moment(state); }
  // Whether the gradients are too, and whether there is a whole one nevertheless, in the store's "gradient". Without it
  // the pieces of the gradient are tensors of the step's plan (bucket_graph()).
  bool divides_gradients() const { return divides_moments_ && options_.divide_gradients; }
  bool has_whole_gradient() const { return !divides_gradients() || options_.accumulate_steps > 1; }
  const Ownership& ownership() const { return ownership_; }
  const std::vector<GradientBucket>& buckets() const { return buckets_; }  // of bucket_graph()
  // Flat states by name: "parameters" [parameter_count], "moment1", "moment2", "ema" [trained_count] floats.
  const std::vector<std::string>& states() const { return states_; }
  // What some optimizers keep in other forms; the store has their bytes by name. Where ranks divide them, this rank's
  // parts.
  const std::vector<PackedState>& packed_states() const { return packed_states_; }
  // With a device: the host's copy, see pull_states().
  float* state(const std::string& name) const { return store_.as<float>(name); }
  // All states from the device to the host's copies, and back after they were written. Nothing to do on the CPU.
  void pull_states() const;
  void push_states() const;
  // The state that evaluation and saved models take: "ema" when there is one, or "parameters".
  const std::string& evaluated_state() const { return evaluated_; }
  void reset_ema();  // to the parameters that the host has written; pushes
  bool has_average() const { return evaluated_ != state::kParameters; }
  // What evaluation and saved models take: the average, where there is one, and frozen parameters.
  ParameterValues evaluated_values() const { return values(evaluated_); }
  // With the trained ones from a state: "parameters" or "ema". The host's copies.
  ParameterValues values(const std::string& of_state) const { return {store_, layout_, state(of_state)}; }
  // What training states hold as it lies in memory: those of packed_states(), unless ranks divide them, and frozen
  // parameters with a storage of their own.
  std::vector<PackedState> all_packed() const;
  // What each rank has a part of instead.
  const std::vector<DividedPackedState>& divided_packed() const { return divided_packed_; }
  // At least `count` floats that nobody else uses until the next run of a plan: the arena's, if it has as many. The
  // host's memory.
  std::span<float> scratch(int64_t count);
  // Has `write` fill a parameter, wherever it lies. The host's copy.
  void set_parameter(const ParameterSlot& slot, FunctionRef<void(std::span<float>)> write);
  // Has `load` fill a buffer with all parameters, on which the moving average then begins.
  void load_parameters(const std::function<void(const ParameterTarget& parameters)>& load);
  // Calls visit(range, values) with the gradient of the sum of losses of the step that ran last, which was of this
  // shape, for all ranges but packed ones; call it before any other plan runs. The values are read where the step has
  // left them; of a step of several micro-batches those of the last one are computed again. With a loss scale they are
  // multiplied by it. False: the plan has written something else over them, or the process is a stage of a pipeline.
  using GradientVisitor = FunctionRef<void(const TrainedRange& range, std::span<const float> values)>;
  bool visit_gradient(int shape, GradientVisitor visit);
  // Exchanges the parameters and their moving average, so that evaluation sees the parameters. A second call restores
  // both; no step may run in between.
  void exchange_average();
  // Profiles the steps that the options name, from now on.
  void profile(const ProfileOptions& options);
  StepProfiler* profiler() { return profiler_.get(); }  // null: nothing is profiled
  // What runs a shape's training step, for profiles.
  const Executor& train_executor(int shape) const { return *shapes_[static_cast<size_t>(shape)]->run_train; }
  // What the passes made of the training graph planned last.
  const std::vector<PassReport>& pass_reports() const { return pass_reports_; }
  // All plans, by "train.SHAPE", "evaluate.SHAPE" and "apply". A stage of a pipeline that is not the last has
  // "train.forward.SHAPE" and "train.backward.SHAPE" instead of the first, and the same of each slot but the first.
  NamedPlans plans() const;
  int shape_count() const { return static_cast<int>(shapes_.size()); }
  // Of a shape whose training is planned, by chunk of the pipeline; one chunk without it.
  std::vector<StepPlans> step_plans(int shape) const;
  const Plan* apply_plan() const { return apply_.kernels.empty() ? nullptr : &apply_; }
  // The plans of evaluate(), which nothing but PackedWeights may change; none with a pipeline, which has others too.
  std::vector<Plan*> evaluation_plans();
  // The arena's size of the largest plan, and what no placement could have gone below.
  std::pair<size_t, size_t> arena_use() const;

 private:
  struct ShapePlans {
    LossFunction loss;
    Plan train, evaluate;
    std::optional<Graph> kept;  // what `train` was made of, with TrainerOptions::keep_graphs
    Fit fit;
    std::unique_ptr<Executor> run_train, run_evaluate;
  };
  PassOptions passes() const;
  PassOptions training_passes() const;
  PlanOptions planning() const { return {.threads = options_.threads, .verify = options_.verify_plans}; }
  bool any_moment(int moment) const;
  void check_division() const;
  void declare_states();
  void declare_own_states();
  std::vector<PackedState> own_packed_states() const;
  void declare_packed_states();
  void declare_gradients();
  void check_packed() const;
  void set_control(double learning_rate, int64_t step);
  void set_loss_scale_input();
  void set_random(int64_t step, int64_t micro);
  bool has_given_norm() const;
  std::vector<RangeSlice> own_slices() const;
  MachinePeak measure_peak();
  int chunks() const { return pipeline_ ? options_.pipeline.chunks : 1; }
  Graph training_graph(const LossFunction& loss, int chunk);
  void plan_training_of(int chunk, int shape, std::optional<size_t> limit);
  bool visit_buckets(int shape, GradientVisitor visit);

  const ParameterLayout& layout_;
  Store& store_;
  const SharedRegions shared_;
  const TrainerOptions options_;
  const Ownership ownership_;
  StepOptions step_options_;
  std::vector<std::string> states_;
  std::vector<PackedState> packed_states_;
  std::vector<DividedPackedState> divided_packed_;
  std::vector<GradientBucket> buckets_;
  LossScale loss_scale_;
  std::string evaluated_;
  std::vector<float> scratch_;  // where the arena is too small
  bool divides_moments_ = false;
  std::unique_ptr<PipelineStage> pipeline_;
  std::vector<std::unique_ptr<ShapePlans>> shapes_;
  std::vector<PassReport> pass_reports_;
  Plan apply_;
  std::unique_ptr<Executor> run_apply_;
  ThreadPool pool_;
  std::unique_ptr<StepProfiler> profiler_;
};

}  // namespace linnet
