// Training steps over planned memory. A trainer declares its states in a store, plans one step for each batch shape,
// and then only runs plans: between bind() and the end it allocates nothing.
//
//   Trainer trainer(layout, store, shared, options);
//   int shape = trainer.plans().add_shape(loss);      // once per bucket
//   store.allocate();  trainer.plans().bind();  trainer.state().initialize();
//   StepReport report = trainer.step(shape, learning_rate, step);
#pragma once
#include <memory>
#include <span>
#include <string>
#include "base/function_ref.h"
#include "data/examples/batch.h"
#include "engine/profile/step_profiler.h"
#include "training/trainer/trainer_plans.h"
#include "training/trainer/training_state.h"

namespace linnet {

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
  // The same in two: on a device submit() only queues the step, so that the next batch can be made and the next step
  // queued meanwhile, and collect() waits. At most DeviceRun::kKept steps may be on their way; on the CPU one.
  SubmittedStep submit(int shape, double learning_rate, int64_t step);
  StepReport collect(const SubmittedStep& step);
  // What submit() writes for the step to read, alone: for find_non_finite() after steps that were run otherwise.
  void set_step(double learning_rate, int64_t step);
  // Or several: accumulate() each (micro from 0), then apply(), or submit_apply() and later collect().
  void accumulate(int shape, int64_t step, int64_t micro);
  // On the CPU: after(node) is called when a node of the shape's train_executor() is done.
  void accumulate(int shape, int64_t step, int64_t micro, Executor::AfterNode after);
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

  // Runs the last micro-batch again, which is still in place, node by node: "file:line: op (in module)" of the first
  // that produced a NaN or an infinity; empty when none did.
  std::string find_non_finite(int shape) const;
  // Calls visit(range, values) with the gradient of the sum of losses of the step that ran last, which was of this
  // shape, for all ranges but packed ones; call it before any other plan runs. The values are read where the step has
  // left them; of a step of several micro-batches those of the last one are computed again, and its tokens counted in
  // `micro_batch_tokens`. With a loss scale they are multiplied by it. False: the plan has written something else over
  // them, or the process is a stage of a pipeline.
  using GradientVisitor = FunctionRef<void(const TrainedRange& range, std::span<const float> values)>;
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
