// Training steps over planned memory. A trainer declares its states in a store and plans one step for each batch shape;
// after bind() it only runs plans and allocates nothing.
//
//   Trainer trainer(layout, store, shared, options);
//   int shape = trainer.plans().add_shape(loss);      // once per bucket
//   store.allocate();  trainer.plans().bind();  trainer.state().initialize();
//   StepReport report = trainer.step(shape, learning_rate, step);
#pragma once
#include "base/functions.h"
#include "data/examples/batch.h"
#include "engine/exec/executor.h"
#include "engine/exec/interpreter.h"
#include "engine/profile/step_profiler.h"
#include "training/trainer/training_state.h"

namespace linnet {
// A trainer's plans: training and evaluation for each batch shape, and the update of several micro-batches.

class PipelineStage;  // training/trainer/pipeline_stage.h

class TrainerPlans {
 public:
  // States are in the same store. `pipeline`: this rank's stages, or null. All but `shared` outlive the plans.
  TrainerPlans(const TrainingState& state, Store& store, const SharedRegions& shared, const TrainerOptions& options,
      PipelineStage* pipeline);

  // Plans training and evaluation of one batch shape. Its inputs must be bound in the store.
  int add_shape(LossFunction loss);
  // Plans the evaluation only; plan_training_within_memory() may follow.
  int add_evaluation_shape(LossFunction loss);
  // Plans the training of all shapes within the options' memory, less `others` unplanned bytes. All else must be
  // declared. If nothing fits, makes the smallest plan with Fit::fits false. May take a minute: `planned` is called.
  using Planned = FunctionRef<void(int64_t done, int64_t shapes)>;
  void plan_training_within_memory(
      uint64_t others, Planned planned = [](int64_t, int64_t) {});
  void bind();  // call after store.allocate()

  int shape_count() const { return static_cast<int>(shapes_.size()); }
  const Fit& largest_fit() const;  // of the shape with the largest plan
  // What the passes made of the training graph planned last.
  const std::vector<PassReport>& pass_reports() const { return pass_reports_; }
  // The largest plan's arena, and a lower bound for any placement.
  std::pair<size_t, size_t> arena_use() const;
  const std::vector<GradientBucket>& buckets() const { return buckets_; }  // of bucket_graph()

  // "train.SHAPE", "evaluate.SHAPE" and "apply". Pipeline stages but the last have "train.forward.SHAPE" and
  // "train.backward.SHAPE" instead of the first, and the same of each slot but the first.
  NamedPlans by_name() const;
  // By pipeline chunk, for a shape with planned training; one chunk without a pipeline.
  std::vector<StepPlans> step_plans(int shape) const;
  const Plan* apply_plan() const { return apply_.kernels.empty() ? nullptr : &apply_; }
  // The plans of Trainer::evaluate(), which only PackedWeights may change; none with a pipeline.
  std::vector<Plan*> evaluation_plans();
  // The training step's graph before passes; with TrainerOptions::keep_graphs the planned one.
  Graph traced_step(int shape) const;

  // Executors of a shape's training step, evaluation and update. They keep their outputs, named by the loss function,
  // until any plan runs; those of several micro-batches are the last one's.
  const Executor& train_executor(int shape) const { return *shapes_[shape]->run_train; }
  const Executor& evaluate_executor(int shape) const { return *shapes_[shape]->run_evaluate; }
  const Executor& apply_executor() const { return *run_apply_; }

 private:
  struct ShapePlans {
    LossFunction loss;
    Plan train, evaluate;
    std::optional<Graph> kept;  // the graph before `train`'s passes, with TrainerOptions::keep_graphs
    Fit fit;
    std::unique_ptr<Executor> run_train, run_evaluate;
  };
  PassOptions passes() const;
  PlanOptions planning() const { return {.threads = options_.threads, .verify = options_.verify_plans}; }
  int chunks() const { return pipeline_ ? options_.pipeline.chunks : 1; }
  Graph training_graph(const LossFunction& loss, int chunk);
  // `limit`: most bytes of arena and workspace together, including what other plans already need.
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
  bool finite;  // false: the parameters are unchanged
  // With a loss scale: its value, and whether an overflow skipped the step and lowered the scale.
  double loss_scale = 1;
  bool skipped = false;
};

// The precision of products on this processor when `wanted` is asked for: fp32 instead of bf16 without bf16
// instructions in the current set (engine/kernels/processor.h).
Precision cpu_precision(Precision wanted);

StepReport step_report(double loss_sum, double token_count, double sum_of_squares);
// Step graph inputs that vary by step: control [2], random [4].
void write_control(float* control, double learning_rate, int64_t step);
void write_random(int32_t* random, uint64_t seed, int64_t step, int64_t micro);

// A step whose report is still to be collected.
struct SubmittedStep {
  const Executor* executor;
  int64_t run;
};

struct LossTotal {
  double sum;
  int64_t tokens;

  double mean() const { return sum / static_cast<double>(tokens); }
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
  RegionId arena() const { return shared_.arena; }

  // Copies a batch to the graphs' inputs; the functions below use the batch loaded last.
  void load(const Batch& batch) const;
  // A step of one micro-batch. `step` counts from 1.
  StepReport step(int shape, double learning_rate, int64_t step) { return collect(submit(shape, learning_rate, step)); }
  // The same in two: on a device submit() only queues the step, at most Executor::kKept of them; collect() waits.
  SubmittedStep submit(int shape, double learning_rate, int64_t step);
  StepReport collect(const SubmittedStep& step);
  // Only writes submit()'s inputs, for find_non_finite() after steps that were run otherwise.
  void set_step(double learning_rate, int64_t step);
  // A step of several micro-batches: accumulate() each (micro from 0), then apply(), or submit_apply() and collect().
  void accumulate(int shape, int64_t step, int64_t micro);
  // On the CPU: calls after(node) when a node of the shape's train_executor() is done.
  void accumulate(int shape, int64_t step, int64_t micro, Executor::AfterNode after);
  // Pipeline: completes accumulate() and the stage's "gradient". submit_apply() calls it, unless there are shards.
  void finish_accumulation();
  StepReport apply(double learning_rate, int64_t step) { return collect(submit_apply(learning_rate, step)); }
  SubmittedStep submit_apply(double learning_rate, int64_t step);

  // The loss of a batch without dropout, on the weights evaluation uses.
  LossTotal evaluate(int shape);
  LossTotal evaluate(const Batch& batch) {
    load(batch);
    return evaluate(batch.shape_index);
  }

  // All inputs of a graph of the trainer; zeros for divided states.
  NamedTensors graph_inputs(const Graph& graph) const;
  // Reruns the last micro-batch. Returns "file:line: op (in module)" of the first node with a NaN or infinity, or "".
  std::string find_non_finite(int shape) const;
  // Calls visit(parameter, values) with the gradients of the sum of losses, times any loss scale, of the last step,
  // which had this shape; skips packed parameters. Call it before any other plan runs. Of several micro-batches the
  // last one's gradient is recomputed and its tokens returned in `micro_batch_tokens`. False if the plan has
  // overwritten some of it, or the process is a pipeline stage.
  using GradientVisitor = FunctionRef<void(const ParameterSlot& parameter, std::span<const float> values)>;
  bool visit_gradient(int shape, GradientVisitor visit, double* micro_batch_tokens = nullptr);

  // Of the next step; collect() updates it. Only if options().loss_scale is on.
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
