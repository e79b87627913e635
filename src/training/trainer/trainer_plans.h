// The plans of a trainer: for each batch shape those of its training step and its evaluation, and the one of the update
// where a step is several micro-batches. Steps and evaluations find in the executors what runs them.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>
#include "engine/exec/executor.h"
#include "training/trainer/training_state.h"

namespace linnet {

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
  // Plans the training of all shapes, such that the options' memory is kept: `others` bytes are taken by what is not
  // planned. Everything else must have been declared in the store. Where nothing fits, the plan that takes least is
  // made and Fit::fits is false. It may take a minute; `planned` hears how many of how many shapes are done.
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
  // The plans of Trainer::evaluate(), which nothing but PackedWeights may change; none with a pipeline, which has
  // others too.
  std::vector<Plan*> evaluation_plans();
  // The graph of a training step before passes, with TrainerOptions::keep_graphs the one that was planned.
  Graph traced_step(int shape) const;

  // What runs a shape's training step, its evaluation and the update, and has their outputs, as the loss function named
  // them, until the next run of any plan. Those of a step of several micro-batches are of the last one.
  const Executor& train_executor(int shape) const { return *shapes_[static_cast<size_t>(shape)]->run_train; }
  const Executor& evaluate_executor(int shape) const { return *shapes_[static_cast<size_t>(shape)]->run_evaluate; }
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

}  // namespace linnet
