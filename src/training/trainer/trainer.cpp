#include "training/trainer/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/digits.h"
#include "base/error.h"
#include "base/timeline.h"
#include "engine/exec/interpreter.h"
#include "engine/ir/op.h"
#include "engine/kernels/bandwidth.h"
#include "engine/kernels/gemm/gemm.h"
#include "engine/kernels/isa.h"
#include "engine/kernels/peak.h"
#include "engine/passes/tensor_parallel.h"
#include "engine/plan/state_names.h"
#include "models/nn/activation_observer.h"
#include "training/trainer/divided_states.h"
#include "training/trainer/pipeline_stage.h"
#include "training/trainer/sharded_step.h"

namespace linnet {
namespace {

size_t float_bytes(int64_t count) { return static_cast<size_t>(count) * sizeof(float); }

}  // namespace

Precision cpu_precision(Precision wanted) {
  return wanted == Precision::kBf16 && gemm_has_bf16() ? Precision::kBf16 : Precision::kF32;
}

namespace {

// Activations are stored in bf16 where the machine multiplies in bf16: elsewhere they would only be rounded for
// products that read fp32.
TrainerOptions for_machine(TrainerOptions options, const Store& store) {
  if (store.device().is_host() && !gemm_has_bf16()) options.passes.storage_type.reset();
  return options;
}

}  // namespace

Precision Trainer::precision() const {
  return store_.device().is_host() ? cpu_precision(options_.passes.precision) : options_.passes.precision;
}

namespace {

// A count of samples or tokens. One that is not finite makes the loss not finite.
int64_t whole_count(double count) {
  if (!std::isfinite(count)) return 0;
  if (count < 0 || count != std::floor(count))
    fail_user("the count of the loss is " + shortest(count) +
              "; it is the number of samples or tokens, whole and not negative");
  return static_cast<int64_t>(count);
}

}  // namespace

StepReport step_report(double loss_sum, double token_count, double sum_of_squares) {
  const double loss = loss_sum / token_count, norm = std::sqrt(sum_of_squares) / token_count;
  return {loss, norm, whole_count(token_count), std::isfinite(loss) && std::isfinite(norm)};
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
      options_(for_machine(options, store)),
      ownership_(layout, options.optimizer, options.shards.ranks),
      step_options_{DType::kF32, options.optimizer, options.loss_scale.is_on()},
      loss_scale_{options.loss_scale.is_on() ? options.loss_scale.initial : 1},
      pool_(options.threads) {
  divides_moments_ = options.training && options.divide_moments && options.shards.ranks > 1 && store.device().is_host();
  check_division();
  if (stages_of(layout))
    pipeline_ = std::make_unique<PipelineStage>(layout, store, shared, options.training ? options.accumulate_steps : 0);
  declare_states();
  if (options_.training && accumulates()) {
    Graph apply = has_given_norm() ? apply_slices_graph(layout, own_slices(), step_options_, !divides_gradients())
                                   : apply_graph(layout, step_options_);
    apply_ = make_plan(optimize(std::move(apply), passes()), store, shared, planning());
  }
  if (options_.training) profile(options_.profile.is_on() ? options_.profile : profile_options_from_environment());
}

Trainer::~Trainer() = default;

// The gradient's norm comes from several ranks, so the update gets it from the host.
bool Trainer::has_given_norm() const { return divides_moments_ || pipeline_; }

// What this rank updates.
std::vector<RangeSlice> Trainer::own_slices() const {
  return divides_moments_ ? ownership_.slices(options_.shards.rank)
                          : Ownership(layout_, options_.optimizer, 1).slices(0);
}

void Trainer::profile(const ProfileOptions& options) {
  profiler_.reset();
  if (options.is_on())
    profiler_ = std::make_unique<StepProfiler>(
        options, StepProfiler::Source{.plans = [this] { return plans(); },
                                      .measure_peak = [this] { return measure_peak(); },
                                      .arena = shared_.arena,
                                      .planned_bytes = [this] { return store_.total_bytes(); }});
}

// Of a device nothing is measured: its name says what it is.
MachinePeak Trainer::measure_peak() {
  constexpr size_t kBlock = size_t{128} << 20;
  if (!store_.device().is_host()) return {.name = store_.device().info().name};
  return {.name = std::to_string(pool_.size()) + (pool_.size() == 1 ? " thread, " : " threads, ") + current_isa() +
                  ", " + precision_name(precision()),
          .flops = 1e9 * measured_peak_gflops(precision(), pool_),
          .bandwidth = measured_bandwidth(pool_, kBlock)};
}

// Passes ask the store's backend for kernels.
PassOptions Trainer::passes() const {
  PassOptions passes = options_.passes;
  passes.backend = &store_.backend();
  return passes;
}

bool Trainer::any_moment(int moment) const {
  return std::ranges::any_of(layout_.ranges(), [&](const TrainedRange& range) {
    return has_moment(optimizer_of(range, options_.optimizer), moment);
  });
}

void Trainer::check_division() const {
  if (!layout_.division()) return;
  const bool has_stages = stages_of(layout_);
  const std::string kind = has_stages ? "pipeline" : "tensor",
                    ones = has_stages && layout_.division()->rank.ranks > 1 ? "tensor=1 and pipeline=1" : kind + "=1";
  if (!layout_.quantized().empty())
    fail_user(kind + " parallel keeps parameters in fp32: leave storage and lora.base_storage at \"fp32\"");
  if (options_.passes.int8 && layout_.division()->rank.ranks > 1)
    fail_user("tensor parallel divides the rows that precision = \"int8\" rounds as a whole: it needs tensor=1");
  if (has_stages && options_.divide_gradients)
    fail_user(
        "zero=2 divides gradients while the backward pass runs, which stages of a pipeline cannot: they need zero=0 or "
        "1");
  const PipelineRank& rank = options_.pipeline;
  if (options_.training && rank.chunks > 1 && options_.accumulate_steps % rank.ranks != 0)
    fail_user(
        "interleaved stages take micro-batches in groups of one for each rank: set accumulate_steps to a multiple of " +
        std::to_string(rank.ranks) + ", not " + std::to_string(options_.accumulate_steps));
  for (const TrainedRange& range : layout_.ranges())
    if (options_.training && !is_elementwise(optimizer_of(range, options_.optimizer)))
      fail_user(
          "optimizers adamw8bit, muon and adafactor update blocks or matrices as a whole, which ranks cannot divide: "
          "they need " +
          ones);
}

void Trainer::declare_states() {
  if (options_.owner) {
    if (options_.optimizer.ema_decay > 0) fail_user("shared weights have no moving average of this learner's own");
    declare_shared(store_, layout_, *options_.owner);
  } else {
    states_ = {state::kParameters};
    declare_flat(store_, layout_, state::kParameters, MemoryKind::kParameters, /*with_untrained=*/true);
    declare_quantized(store_, layout_);
  }
  if (options_.training) {
    if (any_moment(1)) states_.emplace_back(state::kMoment1);
    if (any_moment(2)) states_.emplace_back(state::kMoment2);
    if (options_.optimizer.ema_decay > 0) states_.emplace_back(state::kAverage);
    if (divides_moments_) declare_own_states();
    for (const std::string& name : states_)
      if (name != state::kParameters && !is_divided(name))
        declare_flat(store_, layout_, name, MemoryKind::kOptimizer, /*with_untrained=*/false);
    if (divides_moments_) {
      divided_packed_ = ownership_.packed_states(layout_, options_.optimizer);
      packed_states_ = own_packed_states();
    } else {
      packed_states_ = linnet::packed_states(layout_, options_.optimizer);
    }
    declare_packed_states();
    check_packed();
    if (accumulates() && has_whole_gradient()) declare_gradients();
    if (is_sharded()) declare_shard_sums(store_, layout_, options_.shards, divides_gradients() ? &ownership_ : nullptr);
  }
  if (options_.training && has_given_norm()) bind_own_slices(store_, layout_, own_slices(), states_);
  evaluated_ = !states_.empty() && states_.back() == state::kAverage ? state::kAverage : state::kParameters;
  store_.declare(state::kConstants, MemoryKind::kConstants, float_bytes(layout_.constant_count()));
  constexpr size_t kFew = 64;  // bytes
  store_.declare_together("step inputs", MemoryKind::kBatch,
                          {{"control", kFew}, {"random", kFew}, {"loss_scale", kFew}});
  store_.declare_together("loss sums", MemoryKind::kGradients,
                          {{"loss_sum", kFew}, {"token_count", kFew}, {"sum_of_squares", kFew}});
}

// What a matrix that is stored in bf16 does without.
void Trainer::check_packed() const {
  if (layout_.packed_ranges().empty()) return;
  if (options_.optimizer.ema_decay > 0)
    fail_user("parameters that are stored in bf16 have no moving average: --set ema_decay=0, or storage = \"fp32\"");
  if (is_sharded()) fail_user("parameters that are stored in bf16 are trained by one process, with data_shards = 1");
}

void Trainer::declare_gradients() {
  declare_flat(store_, layout_, state::kGradient, MemoryKind::kGradients, /*with_untrained=*/false);
  if (layout_.packed_ranges().empty()) return;
  Store::Parts parts;
  for (const PackedRange& packed : layout_.packed_ranges())
    parts.emplace_back(state::kGradient + packed.range.suffix, float_bytes(packed.range.count));
  store_.declare_together("packed gradients", MemoryKind::kGradients, parts);
}

// In one region, as a region is rounded up to large pages.
void Trainer::declare_packed_states() {
  Store::Parts parts;
  size_t bytes = 0;
  for (const auto& [name, type] : packed_states_) parts.emplace_back(name, type.bytes()), bytes += type.bytes();
  if (bytes > 0) store_.declare_together("packed moments", MemoryKind::kOptimizer, parts);
}

std::vector<PackedState> Trainer::own_packed_states() const {
  std::vector<PackedState> states;
  for (const RangeSlice& own : ownership_.slices(options_.shards.rank))
    for (PackedState& state : packed_states_of(layout_, part_of(layout_.ranges()[own.range], own), options_.optimizer))
      states.push_back(std::move(state));
  return states;
}

// Of the states that are divided, this rank's slices, one after the other.
void Trainer::declare_own_states() {
  const int64_t count = ownership_.count(options_.shards.rank);
  for (const std::string& state : states_)
    if (is_divided(state)) store_.declare(state, MemoryKind::kOptimizer, float_bytes(count));
}

PassOptions Trainer::training_passes() const {
  PassOptions training = passes();
  training.recompute = true;
  return training;
}

void Trainer::bind() {
  for (auto& plans : shapes_) {
    plans->run_evaluate = std::make_unique<Executor>(plans->evaluate, store_, shared_);
    if (!plans->train.kernels.empty()) plans->run_train = std::make_unique<Executor>(plans->train, store_, shared_);
  }
  if (pipeline_) pipeline_->bind();
  if (!apply_.kernels.empty()) run_apply_ = std::make_unique<Executor>(apply_, store_, shared_);
}

void Trainer::initialize() {
  if (!options_.owner) {
    layout_.initialize_parameters(options_.seed, state(state::kParameters), pool_);
    initialize_quantized(store_, layout_, options_.seed, pool_);
  }
  initialize_constants();
  reset_ema();
}

void Trainer::initialize_constants() {
  layout_.initialize_constants(store_.as<float>(state::kConstants), pool_);
  store_.push(state::kConstants);
}

void Trainer::reset_ema() {
  if (has_average()) std::copy_n(state(state::kParameters), layout_.trained_count(), state(state::kAverage));
  push_states();
}

void Trainer::load_parameters(const std::function<void(const ParameterTarget& parameters)>& load) {
  load_into(store_, layout_, pool_, load);
  reset_ema();
}

void Trainer::set_parameter(const ParameterSlot& slot, FunctionRef<void(std::span<float>)> write) {
  const auto count = static_cast<size_t>(slot.spec.shape.elements());
  if (!layout_.is_quantized(slot)) return write({state(state::kParameters) + slot.offset, count});
  std::vector<float> values(count);
  write(values);
  write_quantized(store_, layout_.quantized_slot(slot), values.data(), pool_);
}

void Trainer::exchange_average() {
  for (const char* name : {state::kParameters, state::kAverage}) store_.pull(name);
  std::swap_ranges(state(state::kParameters), state(state::kParameters) + layout_.trained_count(),
                   state(state::kAverage));
  for (const char* name : {state::kParameters, state::kAverage}) store_.push(name);
}

std::vector<PackedState> Trainer::all_packed() const {
  std::vector<PackedState> all;
  if (!divides_moments_) all = packed_states_;
  for (const QuantizedSlot& slot : layout_.quantized())
    all.push_back({slot.input(), {DType::kU8, {static_cast<int64_t>(slot.shape.bytes())}}});
  return all;
}

void Trainer::pull_states() const {
  for (const std::string& name : states_) store_.pull(name);
  for (const PackedState& state : packed_states_) store_.pull(state.name);
}

void Trainer::push_states() const {
  for (const std::string& name : states_) store_.push(name);
  for (const PackedState& state : packed_states_) store_.push(state.name);
}

// Steps that were skipped do not count for the optimizer.
void Trainer::set_control(double learning_rate, int64_t step) {
  write_control(store_.as<float>("control"), learning_rate, step - loss_scale_.skipped_steps);
  set_loss_scale_input();
}

void Trainer::set_loss_scale_input() { *store_.as<float>("loss_scale") = static_cast<float>(loss_scale_.value); }

void Trainer::set_random(int64_t step, int64_t micro) {
  write_random(store_.as<int32_t>("random"), options_.seed, step, micro);
}

void Trainer::set_step(double learning_rate, int64_t step) {
  set_control(learning_rate, step);
  set_random(step, 0);
}

void Trainer::load(const Batch& batch) const {
  const HostSpan span("load batch");
  for (const auto& [name, bytes] : batch.arrays) {
    store_.find(name, bytes.size());  // an internal error when the input takes less
    std::memcpy(store_.data(name), bytes.data(), bytes.size());
  }
}

SubmittedStep Trainer::submit(int shape, double learning_rate, int64_t step) {
  if (profiler_) profiler_->begin_step(step);
  if (pipeline_) {
    accumulate(shape, step, 0);
    return submit_apply(learning_rate, step);
  }
  set_step(learning_rate, step);
  const Executor& executor = *shapes_[static_cast<size_t>(shape)]->run_train;
  return {&executor, executor.run(pool_)};
}

StepReport Trainer::collect(const SubmittedStep& step) {
  const auto scalar = [&](const char* name) {
    return static_cast<double>(step.executor->output(name, step.run).as<float>()[0]);
  };
  StepReport report = step_report(scalar("loss_sum"), scalar("token_count"), scalar("sum_of_squares"));
  if (options_.loss_scale.is_on()) {
    report.loss_scale = loss_scale_.value;
    report.skipped = !report.finite && loss_scale_.can_skip();
    if (report.finite || report.skipped) loss_scale_.count(report.finite, options_.loss_scale.growth_steps);
  }
  if (profiler_) profiler_->end_step();
  return report;
}

StepReport Trainer::step(int shape, double learning_rate, int64_t step) {
  return collect(submit(shape, learning_rate, step));
}

void Trainer::accumulate(int shape, int64_t step, int64_t micro) {
  set_loss_scale_input();
  const Executor* executor = shapes_[static_cast<size_t>(shape)]->run_train.get();
  const auto random = [this](int64_t of_step, int64_t of_micro) { set_random(of_step, of_micro); };
  if (pipeline_) return pipeline_->accumulate(shape, step, micro, executor, random, pool_);
  set_random(step, micro);
  executor->run(pool_);
}

void Trainer::finish_accumulation() {
  if (!pipeline_) return;
  pipeline_->finish([this](int64_t step, int64_t micro) { set_random(step, micro); }, pool_);
}

void Trainer::accumulate(int shape, int64_t step, int64_t micro, Executor::AfterNode after) {
  set_random(step, micro);
  set_loss_scale_input();
  shapes_[static_cast<size_t>(shape)]->run_train->run(pool_, after);
}

SubmittedStep Trainer::submit_apply(double learning_rate, int64_t step) {
  if (pipeline_ && !is_sharded()) {
    finish_accumulation();
    const float squares = pipeline_->sum_of_squares(pool_);
    store_.fill("sum_of_squares", &squares, sizeof squares);
  }
  set_control(learning_rate, step);
  return {run_apply_.get(), run_apply_->run(pool_)};
}

LossTotal Trainer::evaluate(int shape) {
  const Executor& executor = *shapes_[static_cast<size_t>(shape)]->run_evaluate;
  if (pipeline_) {
    const auto [sum, count] = pipeline_->evaluate(shape, executor, pool_);
    return {sum, static_cast<int64_t>(count)};
  }
  executor.run(pool_);
  if (ActivationObserver* observer = layout_.observer()) observer->collect(executor, store_);
  return {executor.output("loss_sum").as<float>()[0],
          whole_count(static_cast<double>(executor.output("token_count").as<float>()[0]))};
}

std::span<float> Trainer::scratch(int64_t count) {
  const auto size = static_cast<size_t>(count);
  if (store_.device().is_host() && store_.regions()[static_cast<size_t>(shared_.arena)].bytes >= float_bytes(count))
    return {reinterpret_cast<float*>(store_.location(shared_.arena)), size};
  scratch_.resize(std::max(scratch_.size(), size));
  return {scratch_.data(), size};
}

// Where ranks share the layers nothing is looked for: they would leave the exchanges at different nodes.
std::string Trainer::find_non_finite(int shape) const {
  if (layout_.division()) return {};
  const ShapePlans& plans = *shapes_[static_cast<size_t>(shape)];
  Graph graph = plans.kept ? plans.kept->clone() : single_graph(layout_, plans.loss, step_options_);
  if (const Precision precision = options_.passes.precision; precision == Precision::kF16)
    graph = lower_precision(graph, precision, options_.passes.attention_precision.value_or(precision));
  NamedTensors inputs;
  pull_states();
  for (const GraphInput& input : graph.inputs()) {
    HostTensor tensor(graph.value(input.value).type);
    // Of divided moments and gradients a rank has slices. Only the update reads them, behind all that can be found.
    const bool has_slices = is_divided(input.name) || (divides_gradients() && state::is_gradient(input.name));
    if (!has_slices) std::memcpy(tensor.data(), store_.data(input.name), tensor.type().bytes());
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
  if (pipeline_) pipeline_->add_plans(plans);
  return plans;
}

std::vector<StepPlans> Trainer::step_plans(int shape) const {
  std::vector<StepPlans> plans;
  for (int chunk = 0; chunk < chunks(); ++chunk)
    if (pipeline_ && !pipeline_->is_last(chunk)) {
      const auto& [forward, backward] = pipeline_->training_plans(shape, chunk);
      plans.push_back({&forward, &backward});
    } else if (const Plan& train = shapes_[static_cast<size_t>(shape)]->train; !train.kernels.empty()) {
      plans.push_back({&train, nullptr});
    }
  return plans;
}

std::pair<size_t, size_t> Trainer::arena_use() const {
  std::pair<size_t, size_t> use{0, 0};
  for (const auto& [name, plan] : plans())
    if (plan->arena_bytes >= use.first) use = {plan->arena_bytes, plan->arena_lower_bound};
  return use;
}

}  // namespace linnet
