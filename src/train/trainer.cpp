#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "exec/interpreter.h"
#include "kernels/gemm/gemm.h"
#include "nn/model_store.h"

namespace linnet {
namespace {

constexpr size_t kLine = 64;  // each small input on a cache line of its own

size_t float_bytes(int64_t count) { return static_cast<size_t>(count) * sizeof(float); }

}  // namespace

Precision cpu_precision(Precision wanted) {
  return wanted == Precision::kBf16 && gemm_has_bf16() ? Precision::kBf16 : Precision::kF32;
}

Precision Trainer::precision() const {
  return store_.device().is_host() ? cpu_precision(options_.passes.precision) : options_.passes.precision;
}

StepReport step_report(double loss_sum, double token_count, double sum_of_squares) {
  const double loss = loss_sum / token_count, norm = std::sqrt(sum_of_squares) / token_count;
  return {loss, norm, static_cast<int64_t>(token_count), std::isfinite(loss) && std::isfinite(norm)};
}

void write_control(float* control, double learning_rate, int64_t step) {
  control[0] = static_cast<float>(learning_rate);
  control[1] = static_cast<float>(step);
}

void write_random(int32_t* random, uint64_t seed, int64_t step, int64_t micro) {
  random[0] = static_cast<int32_t>(seed & 0xffffffff);
  random[1] = static_cast<int32_t>(seed >> 32);
  random[2] = static_cast<int32_t>(step);
  random[3] = static_cast<int32_t>(micro);
}

Trainer::Trainer(const ParameterLayout& layout, Store& store, const SharedRegions& shared,
                 const TrainerOptions& options)
    : layout_(layout),
      store_(store),
      shared_(shared),
      options_(options),
      step_options_{DType::kF32, options.optimizer},
      pool_(options.threads) {
  declare_states();
  if (options_.training && accumulates())
    apply_ = make_plan(optimize(apply_graph(layout, step_options_), passes()), store, shared,
                       {.threads = options.threads, .verify = options.verify_plans});
}

// Passes ask the store's backend for kernels.
PassOptions Trainer::passes() const {
  PassOptions passes = options_.passes;
  passes.backend = &store_.backend();
  return passes;
}

bool Trainer::any_adam() const {
  return std::any_of(layout_.ranges().begin(), layout_.ranges().end(), [&](const TrainedRange& range) {
    return range.group.optimizer.value_or(options_.optimizer).kind == OptimizerAttrs::Kind::kAdam;
  });
}

void Trainer::declare_states() {
  states_ = {"parameters"};
  declare_flat(store_, layout_, "parameters", MemoryKind::kParameters, /*with_frozen=*/true);
  if (options_.training) {
    states_.emplace_back("moment1");
    if (any_adam()) states_.emplace_back("moment2");
    if (options_.optimizer.ema_decay > 0) states_.emplace_back("ema");
    for (size_t i = 1; i < states_.size(); ++i)
      declare_flat(store_, layout_, states_[i], MemoryKind::kOptimizer, /*with_frozen=*/false);
    if (accumulates()) declare_flat(store_, layout_, "gradient", MemoryKind::kGradients, /*with_frozen=*/false);
  }
  evaluated_ = states_.back() == "ema" ? "ema" : "parameters";
  const size_t constants = float_bytes(layout_.constant_count());
  store_.bind("constants", {store_.add_region("constants", MemoryKind::kConstants, constants), 0}, constants);
  const auto small = [&](const char* region, MemoryKind kind, std::initializer_list<const char*> names) {
    const RegionId id = store_.add_region(region, kind, names.size() * kLine);
    size_t offset = 0;
    for (const char* name : names) store_.bind(name, {id, std::exchange(offset, offset + kLine)}, kLine);
  };
  small("step inputs", MemoryKind::kBatch, {"control", "random"});
  small("loss sums", MemoryKind::kGradients, {"loss_sum", "token_count"});
}

int Trainer::add_shape(LossFunction loss) {
  const int shape = add_evaluation_shape(std::move(loss));
  ShapePlans& plans = *shapes_[static_cast<size_t>(shape)];
  Graph graph = accumulates() ? accumulate_graph(layout_, plans.loss, step_options_)
                              : single_graph(layout_, plans.loss, step_options_);
  PassOptions with_recompute = passes();
  with_recompute.recompute = true;
  pass_reports_.clear();
  plans.train = make_plan(optimize(std::move(graph), with_recompute, &pass_reports_), store_, shared_,
                          {.threads = options_.threads, .verify = options_.verify_plans});
  return shape;
}

int Trainer::add_evaluation_shape(LossFunction loss) {
  auto plans = std::make_unique<ShapePlans>();
  plans->loss = std::move(loss);
  plans->evaluate = make_plan(optimize(evaluate_graph(layout_, plans->loss, evaluated_), passes()), store_, shared_,
                              {.threads = options_.threads, .verify = options_.verify_plans});
  shapes_.push_back(std::move(plans));
  return static_cast<int>(shapes_.size()) - 1;
}

void Trainer::bind() {
  for (auto& plans : shapes_) {
    plans->run_evaluate = std::make_unique<Executor>(plans->evaluate, store_, shared_);
    if (!plans->train.kernels.empty()) plans->run_train = std::make_unique<Executor>(plans->train, store_, shared_);
  }
  if (!apply_.kernels.empty()) run_apply_ = std::make_unique<Executor>(apply_, store_, shared_);
}

void Trainer::initialize() {
  layout_.initialize_parameters(options_.seed, state("parameters"), pool_);
  layout_.initialize_constants(store_.as<float>("constants"), pool_);
  store_.push("constants");
  reset_ema();
}

void Trainer::reset_ema() {
  if (has_average()) std::copy_n(state("parameters"), layout_.trained_count(), state("ema"));
  push_states();
}

void Trainer::exchange_average() {
  for (const char* name : {"parameters", "ema"}) store_.pull(name);
  std::swap_ranges(state("parameters"), state("parameters") + layout_.trained_count(), state("ema"));
  for (const char* name : {"parameters", "ema"}) store_.push(name);
}

void Trainer::pull_states() const {
  for (const std::string& name : states_) store_.pull(name);
}

void Trainer::push_states() const {
  for (const std::string& name : states_) store_.push(name);
}

void Trainer::set_control(double learning_rate, int64_t step) {
  write_control(store_.as<float>("control"), learning_rate, step);
}

void Trainer::set_random(int64_t step, int64_t micro) {
  write_random(store_.as<int32_t>("random"), options_.seed, step, micro);
}

void Trainer::set_step(double learning_rate, int64_t step) {
  set_control(learning_rate, step);
  set_random(step, 0);
}

void Trainer::load(const Batch& batch) const {
  for (const auto& [name, bytes] : batch.arrays) {
    store_.find(name, bytes.size());  // an internal error when the input takes less
    std::memcpy(store_.data(name), bytes.data(), bytes.size());
  }
}

SubmittedStep Trainer::submit(int shape, double learning_rate, int64_t step) {
  set_step(learning_rate, step);
  const Executor& executor = *shapes_[static_cast<size_t>(shape)]->run_train;
  return {&executor, executor.run(pool_)};
}

StepReport Trainer::collect(const SubmittedStep& step) const {
  const auto scalar = [&](const char* name) {
    return static_cast<double>(step.executor->output(name, step.run).as<float>()[0]);
  };
  return step_report(scalar("loss_sum"), scalar("token_count"), scalar("sum_of_squares"));
}

StepReport Trainer::step(int shape, double learning_rate, int64_t step) {
  return collect(submit(shape, learning_rate, step));
}

void Trainer::accumulate(int shape, int64_t step, int64_t micro) {
  set_random(step, micro);
  shapes_[static_cast<size_t>(shape)]->run_train->run(pool_);
}

SubmittedStep Trainer::submit_apply(double learning_rate, int64_t step) {
  set_control(learning_rate, step);
  return {run_apply_.get(), run_apply_->run(pool_)};
}

LossTotal Trainer::evaluate(int shape) {
  const Executor& executor = *shapes_[static_cast<size_t>(shape)]->run_evaluate;
  executor.run(pool_);
  return {executor.output("loss_sum").as<float>()[0],
          static_cast<int64_t>(executor.output("token_count").as<float>()[0])};
}

std::string Trainer::find_non_finite(int shape) const {
  const Graph graph = single_graph(layout_, shapes_[static_cast<size_t>(shape)]->loss, step_options_);
  NamedTensors inputs;
  pull_states();
  for (const GraphInput& input : graph.inputs()) {
    HostTensor tensor(graph.value(input.value).type);
    std::memcpy(tensor.data(), store_.data(input.name), tensor.type().bytes());
    inputs[input.name] = std::move(tensor);
  }
  return first_non_finite(graph, inputs, {.kernels = KernelSet::kFast, .threads = options_.threads});
}

NamedPlans Trainer::plans() const {
  NamedPlans plans;
  for (size_t i = 0; i < shapes_.size(); ++i) {
    plans["evaluate." + std::to_string(i)] = &shapes_[i]->evaluate;
    if (!shapes_[i]->train.kernels.empty()) plans["train." + std::to_string(i)] = &shapes_[i]->train;
  }
  if (!apply_.kernels.empty()) plans["apply"] = &apply_;
  return plans;
}

std::pair<size_t, size_t> Trainer::arena_use() const {
  std::pair<size_t, size_t> use{apply_.arena_bytes, apply_.arena_lower_bound};
  for (const auto& plans : shapes_)
    for (const Plan* plan : {&plans->train, &plans->evaluate})
      if (plan->arena_bytes > use.first) use = {plan->arena_bytes, plan->arena_lower_bound};
  return use;
}

}  // namespace linnet
