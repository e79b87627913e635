// Training steps over planned memory. A trainer declares its states in a store, plans one step for each batch shape,
// and then only runs plans: between bind() and the end it allocates nothing.
//
//   Trainer trainer(layout, store, shared, options);
//   int shape = trainer.plans().add_shape(loss);      // once per bucket
//   store.allocate();  trainer.plans().bind();  trainer.state().initialize();
//   StepReport report = trainer.step(shape, learning_rate, step);
#pragma once
#include "base/function_ref.h"
#include "data/examples/batch.h"
#include "engine/exec/executor.h"
#include "engine/exec/interpreter.h"
#include "engine/profile/step_profiler.h"
#include "training/trainer/training_state.h"

namespace linnet {

// The plans of a trainer: for each batch shape those of its training step and its evaluation, and the one of the update
// where a step is several micro-batches. Steps and evaluations find in the executors what runs them.

class PipelineStage;  // training/trainer/pipeline_stage.h

// What computes a micro-batch: a plan for each pass, or one for both, `forward`.
struct StepPlans {
  const Plan *forward = nullptr, *backward = nullptr;
};

class TrainerPlans {
 public:
  // Of states in the same store. `pipeline`: this rank's stages, or null. All but `shared` outlive the plans.
  TrainerPlans(const TrainingState& state, Store& store, const SharedRegions& shared, const TrainerOptions& options,
               PipelineStage* pipeline);

  // Plans training and evaluation of one batch shape. Its inputs must be bound in the store.
  int add_shape(LossFunction loss);
  // Plans the evaluation only; plan_training_within_memory() may follow.
  int add_evaluation_shape(LossFunction loss);
  // Plans the training of all shapes within the options' memory, of which what is not planned takes `others` bytes.
  // Everything else must have been declared in the store. Where nothing fits, the plan that takes least is made and
  // Fit::fits is false. It may take a minute; `planned` hears how many of how many shapes are done.
  using Planned = FunctionRef<void(int64_t done, int64_t shapes)>;
  void plan_training_within_memory(
      uint64_t others, Planned planned = [](int64_t, int64_t) {});
  void bind();  // after store.allocate()

  int shape_count() const { return static_cast<int>(shapes_.size()); }
  // Of the shape whose plan takes most.
  const Fit& largest_fit() const;
  // What the passes made of the training graph planned last.
  const std::vector<PassReport>& pass_reports() const { return pass_reports_; }
  // The arena's size of the largest plan, and what no placement could have gone below.
  std::pair<size_t, size_t> arena_use() const;
  const std::vector<GradientBucket>& buckets() const { return buckets_; }  // of bucket_graph()

  // All plans, by "train.SHAPE", "evaluate.SHAPE" and "apply". A stage of a pipeline that is not the last has
  // "train.forward.SHAPE" and "train.backward.SHAPE" instead of the first, and the same of each slot but the first.
  NamedPlans by_name() const;
  // Of a shape whose training is planned, by chunk of the pipeline; one chunk without it.
  std::vector<StepPlans> step_plans(int shape) const;
  const Plan* apply_plan() const { return apply_.kernels.empty() ? nullptr : &apply_; }
  // The plans of Trainer::evaluate(), which nothing but PackedWeights may change; none with a pipeline.
  std::vector<Plan*> evaluation_plans();
  // The graph of a training step before passes, with TrainerOptions::keep_graphs the one that was planned.
  Graph traced_step(int shape) const;

  // What runs a shape's training step, its evaluation and the update, and has their outputs, as the loss function named
  // them, until the next run of any plan. Those of a step of several micro-batches are of the last one.
  const Executor& train_executor(int shape) const { return *shapes_[shape]->run_train; }
  const Executor& evaluate_executor(int shape) const { return *shapes_[shape]->run_evaluate; }
  const Executor& apply_executor() const { return *run_apply_; }

 private:
  struct ShapePlans {
    LossFunction loss;
    Plan train, evaluate;
    std::optional<Graph> kept;  // what `train` was made of, with TrainerOptions::keep_graphs
    Fit fit;
    std::unique_ptr<Executor> run_train, run_evaluate;
  };
  PassOptions passes() const;
  PlanOptions planning() const { return {.threads = options_.threads, .verify = options_.verify_plans}; }
  int chunks() const { return pipeline_ ? options_.pipeline.chunks : 1; }
  Graph training_graph(const LossFunction& loss, int chunk);
  // `limit`: most bytes that arena and workspace may take together, with what other plans have made them.
  void plan_training(int shape, std::optional<size_t> limit = {});
  void plan_training_of(int chunk, int shape, std::optional<size_t> limit);

  const TrainingState& state_;
  const ParameterLayout& layout_;
  Store& store_;
  const SharedRegions shared_;
  const TrainerOptions& options_;
  PipelineStage* const pipeline_;
  const StepOptions step_options_;
  std::vector<GradientBucket> buckets_;
  std::vector<std::unique_ptr<ShapePlans>> shapes_;
  std::vector<PassReport> pass_reports_;
  Plan apply_;
  std::unique_ptr<Executor> run_apply_;
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

struct LossTotal {
  double sum;
  int64_t tokens;
};

class Trainer {
 public:
  Trainer(const ParameterLayout& layout, Store& store, const SharedRegions& shared, const TrainerOptions& options);
  ~Trainer();

  TrainingState& state() { return state_; }
  const TrainingState& state() const { return state_; }
  TrainerPlans& plans() { return plans_; }
  const TrainerPlans& plans() const { return plans_; }
  PipelineStage* pipeline() { return pipeline_.get(); }  // null: this process has all layers
  const TrainerOptions& options() const { return options_; }
  ThreadPool& pool() { return pool_; }

  // Copies a batch's arrays to where the graphs read them; the functions below run on what was loaded last.
  void load(const Batch& batch) const;
  // One step of one micro-batch. `step` counts from 1.
  StepReport step(int shape, double learning_rate, int64_t step) { return collect(submit(shape, learning_rate, step)); }
  // The same in two: on a device submit() only queues the step, at most Executor::kKept of them; collect() waits.
  SubmittedStep submit(int shape, double learning_rate, int64_t step);
  StepReport collect(const SubmittedStep& step);
  // What submit() writes for the step to read, alone: for find_non_finite() after steps that were run otherwise.
  void set_step(double learning_rate, int64_t step);
  // Or several: accumulate() each (micro from 0), then apply(), or submit_apply() and later collect().
  void accumulate(int shape, int64_t step, int64_t micro);
  // On the CPU: after(node) is called when a node of the shape's train_executor() is done.
  void accumulate(int shape, int64_t step, int64_t micro, Executor::AfterNode after);
  // Of a pipeline: completes what accumulate() has begun, and with it the state "gradient" of the stage's parameters.
  // submit_apply() calls it, unless there are shards.
  void finish_accumulation();
  StepReport apply(double learning_rate, int64_t step) { return collect(submit_apply(learning_rate, step)); }
  SubmittedStep submit_apply(double learning_rate, int64_t step);

  // The loss of a batch without dropout, on the weights evaluation uses.
  LossTotal evaluate(int shape);
  LossTotal evaluate(const Batch& batch) {
    load(batch);
    return evaluate(batch.shape_index);
  }

  // All that a graph of the trainer's reads; of what ranks divide, zeros.
  NamedTensors graph_inputs(const Graph& graph) const;
  // Runs the last micro-batch again, which is still in place, node by node: "file:line: op (in module)" of the first
  // that produced a NaN or an infinity; empty when none did.
  std::string find_non_finite(int shape) const;
  // Calls visit(parameter, values) with the gradient of the sum of losses of the step that ran last, of this shape, for
  // all parameters but packed ones; before any other plan runs. Of a step of several micro-batches the last one's is
  // computed again, and its tokens counted in `micro_batch_tokens`. A loss scale is in it. False: the plan has written
  // over some of it, or the process is a stage of a pipeline.
  using GradientVisitor = FunctionRef<void(const ParameterSlot& parameter, std::span<const float> values)>;
  bool visit_gradient(int shape, GradientVisitor visit, double* micro_batch_tokens = nullptr);

  // Of the next step; collect() moves it. Only where options().loss_scale is on.
  const LossScale& loss_scale() const { return loss_scale_; }
  void set_loss_scale(const LossScale& scale) { loss_scale_ = scale; }
  // Profiles the steps that the options name, from now on.
  void profile(const ProfileOptions& options);
  StepProfiler* profiler() { return profiler_.get(); }  // null: nothing is profiled

 private:
  MachinePeak measure_peak();
  void set_control(double learning_rate, int64_t step);
  void set_loss_scale_input();
  void set_random(int64_t step, int64_t micro);
  void visit_accumulated(int shape, GradientVisitor visit, double* tokens);
  void visit_range(const TrainedRange& range, const float* values, GradientVisitor visit) const;

  const TrainerOptions options_;
  const SharedRegions shared_;
  ThreadPool pool_;
  const std::unique_ptr<PipelineStage> pipeline_;
  TrainingState state_;
  TrainerPlans plans_;
  const ParameterLayout& layout_;
  const Store& store_;
  LossScale loss_scale_;
  std::unique_ptr<StepProfiler> profiler_;
};

}  // namespace linnet
