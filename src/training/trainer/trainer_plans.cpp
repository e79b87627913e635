// The plans of a trainer's batch shapes.
#include <algorithm>
#include <string_view>

#include "engine/ir/op.h"
#include "engine/plan/state_names.h"
#include "engine/plan/storage.h"
#include "models/nn/pipeline_parallel.h"
#include "training/trainer/pipeline_stage.h"
#include "training/trainer/trainer.h"

namespace linnet {

namespace {

// Trainer::visit_gradient(), which looks at the gradient that a step has left behind.

size_t gradient_bytes(int64_t count) { return static_cast<size_t>(count) * sizeof(float); }

bool is_norm(const Node& node) { return std::string_view(node.op->name) == "sum_of_squares"; }

// Whether the bytes of a flat gradient still hold it when the plan has run: nothing that is computed after its norm may
// lie there.
bool is_intact(const Plan& plan, RegionId arena, const Location& location, size_t bytes) {
  if (location.region != arena) return true;
  const auto first_norm = std::ranges::find_if(plan.graph.nodes(), is_norm);
  const auto norm = static_cast<NodeId>(first_norm - plan.graph.nodes().begin());
  return std::ranges::none_of(arena_tenants(plan, arena), [&](const ArenaTenant& tenant) {
    return tenant.first >= norm && tenant.offset < location.offset + bytes &&
           location.offset < tenant.offset + tenant.bytes;
  });
}

}  // namespace

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

bool Trainer::visit_gradient(int shape, GradientVisitor visit) {
  if (pipeline_) return false;
  if (accumulates() && !has_whole_gradient()) return visit_buckets(shape, visit);
  if (accumulates()) {
    shapes_[static_cast<size_t>(shape)]->run_train->run(pool_);
    for (const TrainedRange& range : layout_.ranges()) {
      const std::string name = state::kGradient + range.suffix;
      store_.pull(name);
      float* values = store_.as<float>(name);
      visit(range, {values, static_cast<size_t>(range.count)});
      std::fill_n(values, range.count, 0.0F);
      store_.push(name);
    }
    const float zero = 0;
    for (const char* name : {"loss_sum", "token_count"}) store_.fill(name, &zero, sizeof zero);
    return true;
  }
  const Plan& plan = shapes_[static_cast<size_t>(shape)]->train;
  std::vector<Location> slots;
  for (const Node& node : plan.graph.nodes())
    if (is_norm(node)) slots.push_back(plan.location[static_cast<size_t>(node.in[0])]);
  for (size_t i = 0; i < layout_.ranges().size(); ++i) {
    const TrainedRange& range = layout_.ranges()[i];
    if (!is_intact(plan, shared_.arena, slots[i], gradient_bytes(range.count))) return false;
    const auto count = static_cast<size_t>(range.count);
    const std::byte* from = store_.location(slots[i].region) + slots[i].offset;
    if (store_.device().is_host()) {
      visit(range, {reinterpret_cast<const float*>(from), count});
      continue;
    }
    std::vector<float> copy(count);
    store_.device().download(reinterpret_cast<std::byte*>(copy.data()), from, gradient_bytes(range.count));
    store_.device().wait();
    visit(range, copy);
  }
  return true;
}

bool Trainer::visit_buckets(int shape, GradientVisitor visit) {
  const Executor& executor = *shapes_[static_cast<size_t>(shape)]->run_train;
  const std::vector<HeldBucket> held = held_buckets(executor.plan());
  std::vector<float> gradient(static_cast<size_t>(layout_.trained_count()));
  size_t next = 0;
  executor.run(pool_, [&](NodeId node) {
    for (; next < held.size() && held[next].ready <= node; ++next) {
      const GradientBucket& bucket = buckets_[next];
      const int64_t first = layout_.ranges()[bucket.range].offset + bucket.first;
      std::copy_n(held[next].values(store_), bucket.count, gradient.begin() + first);
    }
  });
  for (const TrainedRange& range : layout_.ranges())
    visit(range, std::span(gradient).subspan(static_cast<size_t>(range.offset), static_cast<size_t>(range.count)));
  const float zero = 0;
  for (const char* name : {"loss_sum", "token_count"}) store_.fill(name, &zero, sizeof zero);
  return true;
}

}  // namespace linnet
