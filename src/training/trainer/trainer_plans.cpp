// The plans of a trainer's batch shapes.
#include <algorithm>

#include "models/nn/pipeline_parallel.h"
#include "training/trainer/pipeline_stage.h"
#include "training/trainer/trainer.h"

namespace linnet {

int Trainer::add_shape(LossFunction loss) {
  const int shape = add_evaluation_shape(std::move(loss));
  plan_training(shape);
  return shape;
}

int Trainer::add_evaluation_shape(LossFunction loss) {
  auto plans = std::make_unique<ShapePlans>();
  plans->loss = std::move(loss);
  const int shape = static_cast<int>(shapes_.size()), last = chunks() - 1;
  for (int chunk = 0; chunk <= last; ++chunk) {
    Graph graph = evaluate_graph(layout_, loss_of_stage(plans->loss, layout_.shared_division(), chunk), evaluated_);
    if (chunk < last) {
      pipeline_->plan_evaluation(shape, chunk, graph, passes(), planning());
      continue;
    }
    if (pipeline_) graph = pipeline_->with_ends(shape, chunk, graph, /*training=*/false);
    plans->evaluate = make_plan(optimize(std::move(graph), passes()), store_, shared_, planning());
  }
  shapes_.push_back(std::move(plans));
  return shape;
}

std::vector<Plan*> Trainer::evaluation_plans() {
  std::vector<Plan*> plans;
  for (const auto& shape : shapes_)
    if (!pipeline_) plans.push_back(&shape->evaluate);
  return plans;
}

Graph Trainer::training_graph(const LossFunction& loss, int chunk) {
  if (!accumulates()) return single_graph(layout_, loss, step_options_);
  StepOptions options = step_options_;
  options.chunk = chunk;
  if (has_whole_gradient())
    return accumulate_graph(layout_, loss_of_stage(loss, layout_.shared_division(), chunk), options);
  // All ranks send the buckets in one order, so the first shape decides it for all shapes.
  const bool is_first = buckets_.empty();
  if (is_first) buckets_ = gradient_buckets(layout_);
  return bucket_graph(layout_, loss, step_options_, buckets_, is_first);
}

const Fit& Trainer::plan_training(int shape, std::optional<size_t> limit) {
  pass_reports_.clear();
  shapes_[static_cast<size_t>(shape)]->fit.planned_bytes = 0;
  for (int chunk = 0; chunk < chunks(); ++chunk) plan_training_of(chunk, shape, limit);
  return shapes_[static_cast<size_t>(shape)]->fit;
}

// The shape's fit is that of the chunk that takes most.
void Trainer::plan_training_of(int chunk, int shape, std::optional<size_t> limit) {
  ShapePlans& plans = *shapes_[static_cast<size_t>(shape)];
  Graph graph = training_graph(plans.loss, chunk);
  if (options_.keep_graphs) plans.kept = graph.clone();
  PassOptions training = training_passes();
  const auto region = [&](RegionId id) { return store_.regions()[static_cast<size_t>(id)].bytes; };
  const auto fits = [&](const PlanSize& size) {
    const Device& device = store_.device();
    return device.footprint(std::max(region(shared_.arena), size.arena_bytes)) +
               device.footprint(std::max(region(shared_.workspace), size.workspace_bytes)) <=
           limit.value_or(SIZE_MAX);
  };
  Fit fit = limit && options_.recompute == RecomputeMode::kAuto ? fit_to_memory(graph, training, planning(), fits)
                                                                : fit_by_mode(graph, training, options_.recompute);
  training.blocks = fit.choices;
  PlanSize size{};
  if (pipeline_ && !pipeline_->is_last(chunk)) {
    pipeline_->plan_training(shape, chunk, graph, training, planning(), &pass_reports_);
    size = pipeline_->training_size(shape, chunk);
  } else {
    if (pipeline_) graph = pipeline_->with_ends(shape, chunk, graph, /*training=*/true);
    plans.train = make_plan(optimize(std::move(graph), training, &pass_reports_), store_, shared_, planning());
    size = {plans.train.arena_bytes, plans.train.workspace_bytes};
  }
  fit.planned_bytes = size.arena_bytes + size.workspace_bytes;
  fit.fits = fits(size);
  if (fit.planned_bytes >= plans.fit.planned_bytes) plans.fit = std::move(fit);
}

void Trainer::plan_training_within_memory(uint64_t others) {
  uint64_t fixed = others;
  for (RegionId id = 0; id < static_cast<RegionId>(store_.regions().size()); ++id)
    if (id != shared_.arena && id != shared_.workspace)
      fixed += store_.device().footprint(store_.regions()[static_cast<size_t>(id)].bytes);
  const size_t limit = options_.memory > fixed ? options_.memory - fixed : 0;
  for (int shape = 0; shape < static_cast<int>(shapes_.size()); ++shape) plan_training(shape, limit);
}

const Fit& Trainer::largest_fit() const {
  return (*std::ranges::max_element(shapes_, {}, [](const auto& plans) { return plans->fit.planned_bytes; }))->fit;
}

}  // namespace linnet
