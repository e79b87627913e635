#include "training/trainer/pipeline_stage.h"
#include "training/trainer/trainer.h"

namespace linnet {
TrainerPlans::TrainerPlans(const TrainingState& state, Store& store, const SharedRegions& shared,
    const TrainerOptions& options, PipelineStage* pipeline)
    : state_(state), layout_(state.layout()), store_(store), shared_(shared), options_(options),
      pipeline_(pipeline), step_options_{DType::kF32, options.optimizer, options.loss_scale.is_on()} {
  if (!options.training || !options.accumulates()) return;
  // Several ranks contribute to the gradient's norm, so the host passes it to the update.
  const bool has_given_norm = state.divides_moments() || pipeline;
  Graph apply = has_given_norm
                    ? apply_slices_graph(layout_, state.own_slices(), step_options_, !state.divides_gradients())
                    : apply_graph(layout_, step_options_);
  apply_ = make_plan(optimize(std::move(apply), passes()), store, shared, planning());
}

// Passes ask the store's backend for kernels.
PassOptions TrainerPlans::passes() const {
  PassOptions passes = options_.passes;
  passes.backend = &store_.backend();
  return passes;
}

int TrainerPlans::add_shape(LossFunction loss) {
  const int shape = add_evaluation_shape(std::move(loss));
  plan_training(shape);
  return shape;
}

int TrainerPlans::add_evaluation_shape(LossFunction loss) {
  auto plans = std::make_unique<ShapePlans>();
  plans->loss = [loss = std::move(loss), has_all = store_.backend().has_references](Trace& trace) {
    trace.decomposes = !has_all;
    return loss(trace);
  };
  const int shape = static_cast<int>(shapes_.size()), last = chunks() - 1;
  for (int chunk = 0; chunk <= last; ++chunk) {
    Graph graph =
        evaluate_graph(layout_, loss_of_stage(plans->loss, layout_.shared_division(), chunk), state_.evaluated());
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

std::vector<Plan*> TrainerPlans::evaluation_plans() {
  if (pipeline_) return {};
  return mapped(shapes_, [](const auto& shape) { return &shape->evaluate; });
}

Graph TrainerPlans::training_graph(const LossFunction& loss, int chunk) {
  if (!options_.accumulates()) return single_graph(layout_, loss, step_options_);
  StepOptions options = step_options_;
  options.chunk = chunk;
  if (state_.has_whole_gradient())
    return accumulate_graph(layout_, loss_of_stage(loss, layout_.shared_division(), chunk), options);
  // All ranks send buckets in one order, so the first shape decides it for all shapes.
  const bool is_first = buckets_.empty();
  if (is_first) buckets_ = gradient_buckets(layout_);
  return bucket_graph(layout_, loss, step_options_, buckets_, is_first);
}

void TrainerPlans::plan_training(int shape, std::optional<size_t> limit) {
  pass_reports_.clear();
  shapes_[shape]->fit.planned_bytes = 0;
  for (int chunk = 0; chunk < chunks(); ++chunk) plan_training_of(chunk, shape, limit);
}

// The shape's fit is that of the largest chunk.
void TrainerPlans::plan_training_of(int chunk, int shape, std::optional<size_t> limit) {
  ShapePlans& plans = *shapes_[shape];
  Graph graph = training_graph(plans.loss, chunk);
  if (options_.keep_graphs) plans.kept = graph.clone();
  PassOptions training = passes();
  training.recompute = true;
  const auto region = [&](RegionId id) { return store_.regions()[id].bytes; };
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
  fit.planned_bytes = size.bytes();
  fit.fits = fits(size);
  if (fit.planned_bytes >= plans.fit.planned_bytes) plans.fit = std::move(fit);
}

void TrainerPlans::plan_training_within_memory(uint64_t others, Planned planned) {
  uint64_t fixed = others;
  for (RegionId id = 0; id < static_cast<RegionId>(store_.regions().size()); ++id)
    if (id != shared_.arena && id != shared_.workspace) fixed += store_.device().footprint(store_.regions()[id].bytes);
  const size_t limit = options_.memory > fixed ? options_.memory - fixed : 0;
  for (int shape = 0; shape < shape_count(); ++shape) {
    plan_training(shape, limit);
    planned(shape + 1, shape_count());
  }
}

const Fit& TrainerPlans::largest_fit() const {
  return (*std::ranges::max_element(shapes_, {}, [](const auto& plans) { return plans->fit.planned_bytes; }))->fit;
}

void TrainerPlans::bind() {
  for (auto& plans : shapes_) {
    plans->run_evaluate = std::make_unique<Executor>(plans->evaluate, store_, shared_);
    if (!plans->train.kernels.empty()) plans->run_train = std::make_unique<Executor>(plans->train, store_, shared_);
  }
  if (pipeline_) pipeline_->bind();
  if (!apply_.kernels.empty()) run_apply_ = std::make_unique<Executor>(apply_, store_, shared_);
}

Graph TrainerPlans::traced_step(int shape) const {
  const ShapePlans& plans = *shapes_[shape];
  return plans.kept ? plans.kept->clone() : single_graph(layout_, plans.loss, step_options_);
}

NamedPlans TrainerPlans::by_name() const {
  NamedPlans plans;
  for (size_t i = 0; i < shapes_.size(); ++i) {
    plans["evaluate." + std::to_string(i)] = &shapes_[i]->evaluate;
    if (!shapes_[i]->train.kernels.empty()) plans["train." + std::to_string(i)] = &shapes_[i]->train;
  }
  if (!apply_.kernels.empty()) plans["apply"] = &apply_;
  if (pipeline_) pipeline_->add_plans(plans);
  return plans;
}

std::vector<StepPlans> TrainerPlans::step_plans(int shape) const {
  std::vector<StepPlans> plans;
  for (int chunk = 0; chunk < chunks(); ++chunk)
    if (pipeline_ && !pipeline_->is_last(chunk)) plans.push_back(pipeline_->training_plans(shape, chunk));
    else if (const Plan& train = shapes_[shape]->train; !train.kernels.empty()) plans.push_back({&train, nullptr});
  return plans;
}

std::pair<size_t, size_t> TrainerPlans::arena_use() const {
  std::pair<size_t, size_t> use{0, 0};
  for (const auto& [name, plan] : by_name())
    if (plan->arena_bytes >= use.first) use = {plan->arena_bytes, plan->arena_lower_bound};
  return use;
}
}  // namespace linnet
