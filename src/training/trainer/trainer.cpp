#include "training/trainer/trainer.h"
#include "base/fail.h"
#include "base/numbers.h"
#include "base/timeline.h"
#include "engine/ir/op.h"
#include "engine/kernels/gemm/gemm.h"
#include "engine/kernels/processor.h"
#include "engine/ops/optimizer/optimizer.h"
#include "engine/plan/plan.h"
#include "models/nn/activation_observer.h"
#include "training/trainer/pipeline_stage.h"

namespace linnet {
Precision cpu_precision(Precision wanted) {
  return wanted == Precision::kBf16 && gemm_has_bf16() ? Precision::kBf16 : Precision::kF32;
}

namespace {
// Stores activations in bf16 only where the machine multiplies in bf16: elsewhere products read fp32.
TrainerOptions for_machine(TrainerOptions options, const Store& store) {
  if (store.device().is_host() && !gemm_has_bf16()) options.passes.storage_type.reset();
  return options;
}

void check_division(const ParameterLayout& layout, const TrainerOptions& options) {
  if (!layout.division()) return;
  const bool has_stages = stages_of(layout), has_parts = layout.division()->rank.ranks > 1;
  const std::string kind = has_stages ? "pipeline" : "tensor",
                    ones = has_stages && has_parts ? "tensor=1 and pipeline=1" : kind + "=1";
  if (!layout.quantized().empty())
    fail_user(kind, " parallel keeps parameters in fp32: leave storage and lora.base_storage at \"fp32\"");
  if (options.passes.int8 && has_parts)
    fail_user("tensor parallel divides the rows that precision = \"int8\" rounds as a whole: it needs tensor=1");
  if (has_stages && options.divide_gradients)
    fail_user(
        "zero=2 divides gradients while the backward pass runs, which stages of a pipeline cannot: they need zero=0 or "
        "1");
  const PipelineRank& rank = options.pipeline;
  if (options.training && rank.chunks > 1 && options.accumulate_steps % rank.ranks != 0)
    fail_user(
        "interleaved stages take micro-batches in groups of one for each rank: set accumulate_steps to a multiple of ",
        rank.ranks, ", not ", options.accumulate_steps);
  for (const TrainedRange& range : layout.ranges())
    if (options.training && !is_elementwise(optimizer_of(range, options.optimizer)))
      fail_user(
          "optimizers adamw8bit, muon and adafactor update blocks or matrices as a whole, which ranks cannot divide: "
          "they need ",
          ones);
}

// This rank's pipeline stages; null: it has all layers.
std::unique_ptr<PipelineStage> make_stages(
    const ParameterLayout& layout, Store& store, const SharedRegions& shared, const TrainerOptions& options) {
  check_division(layout, options);
  if (!stages_of(layout)) return nullptr;
  const int64_t micro_batches = options.training ? options.accumulate_steps : 0;
  return std::make_unique<PipelineStage>(layout, store, shared, micro_batches, options.seed);
}

// A count of samples or tokens. If it is not finite, neither is the loss.
int64_t whole_count(double count) {
  if (!std::isfinite(count)) return 0;
  if (count < 0 || count != std::floor(count))
    fail_user("the count of the loss is ", shortest(count),
        "; it is the number of samples or tokens, whole and not negative");
  return static_cast<int64_t>(count);
}

bool is_norm(const Node& node) { return node.op == &kSumOfSquares; }

// Whether a flat gradient survives the plan: nothing computed after its norm may overlap it.
bool is_intact(const Plan& plan, RegionId arena, const Location& location, size_t bytes) {
  if (location.region != arena) return true;
  const auto first_norm = std::ranges::find_if(plan.graph.nodes(), is_norm);
  const auto norm = static_cast<NodeId>(first_norm - plan.graph.nodes().begin());
  for (const auto& [node, offset] : plan.workspace_in_arena)  // its size is unknown
    if (node >= norm && offset < location.offset + bytes) return false;
  return std::ranges::none_of(arena_tenants(plan, arena), [&](const ArenaTenant& tenant) {
    return tenant.first >= norm && tenant.offset < location.offset + bytes &&
           location.offset < tenant.offset + tenant.bytes;
  });
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

Trainer::Trainer(
    const ParameterLayout& layout, Store& store, const SharedRegions& shared, const TrainerOptions& options)
    : options_(for_machine(options, store)), shared_(shared), pool_(options.threads),
      pipeline_(make_stages(layout, store, shared, options_)), state_(layout, store, shared, options_, pool_),
      plans_(state_, store, shared, options_, pipeline_.get()), layout_(layout),
      store_(store), loss_scale_{options.loss_scale.is_on() ? options.loss_scale.initial : 1} {
  if (options_.training) profile(options_.profile.is_on() ? options_.profile : profile_options_from_environment());
}

Trainer::~Trainer() = default;

void Trainer::profile(const ProfileOptions& options) {
  profiler_.reset();
  if (options.is_on())
    profiler_ =
        std::make_unique<StepProfiler>(options, StepProfiler::Source{.plans = [this] { return plans_.by_name(); },
                                                    .measure_peak = [this] { return measure_peak(); },
                                                    .arena = shared_.arena,
                                                    .planned_bytes = [this] { return store_.total_bytes(); }});
}

// Measures nothing on a device, which is named instead.
MachinePeak Trainer::measure_peak() {
  constexpr size_t kBlock = size_t{128} << 20;
  if (!store_.device().is_host()) return {.name = store_.device().info().name};
  // Without bf16 instructions this differs from the options.
  const Precision precision = cpu_precision(options_.passes.precision);
  return {.name = std::to_string(pool_.size()) + (pool_.size() == 1 ? " thread, " : " threads, ") + current_isa() +
                  ", " + precision_name(precision),
      .flops = 1e9 * measured_peak_gflops(precision, pool_),
      .bandwidth = measured_bandwidth(pool_, kBlock)};
}

// The optimizer does not count skipped steps.
void Trainer::set_control(double learning_rate, int64_t step) {
  write_control(store_.as<float>(state::kControl), learning_rate, step - loss_scale_.skipped_steps);
  set_loss_scale_input();
}

void Trainer::set_loss_scale_input() { *store_.as<float>(state::kLossScale) = static_cast<float>(loss_scale_.value); }

void Trainer::set_random(int64_t step, int64_t micro) {
  write_random(store_.as<int32_t>(state::kRandom), options_.seed, step, micro);
}

void Trainer::set_step(double learning_rate, int64_t step) {
  set_control(learning_rate, step);
  set_random(step, 0);
}

void Trainer::load(const Batch& batch) const {
  const HostSpan span("load batch");
  for (const auto& [name, bytes] : batch.arrays) {
    store_.find(name, bytes.size());  // internal error if the input is smaller
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
  const Executor& executor = plans_.train_executor(shape);
  return {&executor, executor.run(pool_)};
}

StepReport Trainer::collect(const SubmittedStep& step) {
  const auto scalar = [&](const char* name) {
    return static_cast<double>(step.executor->output(name, step.run).as<float>()[0]);
  };
  StepReport report = step_report(scalar(state::kLossSum), scalar(state::kTokenCount), scalar(state::kSumOfSquares));
  if (options_.loss_scale.is_on()) {
    report.loss_scale = loss_scale_.value;
    report.skipped = !report.finite && loss_scale_.can_skip();
    if (report.finite || report.skipped) loss_scale_.count(report.finite, options_.loss_scale.growth_steps);
  }
  if (profiler_) profiler_->end_step();
  return report;
}

void Trainer::accumulate(int shape, int64_t step, int64_t micro) {
  set_loss_scale_input();
  // Only the last stage has a plan for both passes.
  const Executor* executor = options_.pipeline.is_last() ? &plans_.train_executor(shape) : nullptr;
  if (pipeline_) return pipeline_->accumulate(shape, step, micro, executor, pool_);
  set_random(step, micro);
  executor->run(pool_);
}

void Trainer::finish_accumulation() {
  if (pipeline_) pipeline_->finish(pool_);
}

void Trainer::accumulate(int shape, int64_t step, int64_t micro, Executor::AfterNode after) {
  set_random(step, micro);
  set_loss_scale_input();
  plans_.train_executor(shape).run(pool_, after);
}

SubmittedStep Trainer::submit_apply(double learning_rate, int64_t step) {
  if (pipeline_ && options_.shards.shards == 1) {
    finish_accumulation();
    const float squares = pipeline_->sum_of_squares(pool_);
    store_.fill(state::kSumOfSquares, &squares, sizeof squares);
  }
  set_control(learning_rate, step);
  const Executor& executor = plans_.apply_executor();
  return {&executor, executor.run(pool_)};
}

LossTotal Trainer::evaluate(int shape) {
  const Executor& executor = plans_.evaluate_executor(shape);
  if (pipeline_) {
    const auto [sum, count] = pipeline_->evaluate(shape, executor, pool_);
    return {sum, static_cast<int64_t>(count)};
  }
  executor.run(pool_);
  if (ActivationObserver* observer = layout_.observer()) observer->collect(executor, store_);
  return {executor.output(state::kLossSum).as<float>()[0],
      whole_count(static_cast<double>(executor.output(state::kTokenCount).as<float>()[0]))};
}

// No search where ranks share layers: they would leave the exchanges at different nodes.
std::string Trainer::find_non_finite(int shape) const {
  if (layout_.division()) return {};
  Graph graph = plans_.traced_step(shape);
  const Precision precision = options_.passes.precision;
  if (precision == Precision::kF16)
    graph = lower_precision(graph, precision, options_.passes.attention_precision.value_or(precision));
  const InterpreterOptions fast{.kernels = KernelSet::kFast, .threads = options_.threads};
  const std::string found = first_non_finite(graph, graph_inputs(graph), fast);
  return found.find("sum_of_squares") == found.npos ? found : "the norm of the gradients, whose squares overflow";
}

NamedTensors Trainer::graph_inputs(const Graph& graph) const {
  NamedTensors inputs;
  state_.pull();
  for (const GraphInput& input : graph.inputs()) {
    HostTensor tensor(graph.value(input.value).type);
    // A rank has slices of divided moments and gradients. Only the update reads them, after all that is searched.
    const bool has_slices =
        state_.is_divided(input.name) || (state_.divides_gradients() && state::is_gradient(input.name));
    if (!has_slices) std::memcpy(tensor.data(), store_.data(input.name), tensor.type().bytes());
    inputs[input.name] = std::move(tensor);
  }
  return inputs;
}

bool Trainer::visit_gradient(int shape, GradientVisitor visit, double* micro_batch_tokens) {
  if (pipeline_) return false;
  if (options_.accumulates()) {
    std::vector<float> buffers;  // changed by a micro-batch
    if (store_.has(kBufferInput)) {
      store_.pull(kBufferInput);
      buffers.resize(layout_.stored_count() - layout_.buffer_offset());
      std::copy_n(store_.as<float>(kBufferInput), buffers.size(), buffers.begin());
    }
    set_totals(store_, 0, 0);
    visit_accumulated(shape, visit, micro_batch_tokens);
    set_totals(store_, 0, 0);
    if (buffers.empty()) return true;
    std::ranges::copy(buffers, store_.as<float>(kBufferInput));
    store_.push(kBufferInput);
    return true;
  }
  const Plan& plan = plans_.train_executor(shape).plan();
  std::vector<Location> slots;
  for (const Node& node : plan.graph.nodes())
    if (is_norm(node)) slots.push_back(plan.location[node.in[0]]);
  for (size_t i = 0; i < layout_.ranges().size(); ++i) {
    const TrainedRange& range = layout_.ranges()[i];
    const auto count = static_cast<size_t>(range.count);
    if (!is_intact(plan, shared_.arena, slots[i], count * sizeof(float))) return false;
    const std::byte* from = store_.location(slots[i].region) + slots[i].offset;
    std::vector<float> copy;
    if (!store_.device().is_host()) {
      copy.resize(count);
      store_.device().download(reinterpret_cast<std::byte*>(copy.data()), from, count * sizeof(float));
      store_.device().wait();
    }
    visit_range(range, copy.empty() ? reinterpret_cast<const float*>(from) : copy.data(), visit);
  }
  return true;
}

void Trainer::visit_accumulated(int shape, GradientVisitor visit, double* tokens) {
  const Executor& executor = plans_.train_executor(shape);
  const auto count_tokens = [&] {
    if (!tokens) return;
    store_.pull(state::kTokenCount);
    *tokens = *store_.as<float>(state::kTokenCount);
  };
  if (state_.has_whole_gradient()) {
    executor.run(pool_);
    count_tokens();
    for (const TrainedRange& range : layout_.ranges()) {
      const std::string name = state::kGradient + range.suffix;
      store_.pull(name);
      float* values = store_.as<float>(name);
      visit_range(range, values, visit);
      std::fill_n(values, range.count, 0.0F);
      store_.push(name);
    }
    return;
  }
  const std::vector<HeldBucket> held = held_buckets(executor.plan());
  std::vector<float> gradient(layout_.trained_count());
  size_t next = 0;
  executor.run(pool_, [&](NodeId node) {
    for (; next < held.size() && held[next].ready <= node; ++next) {
      const GradientBucket& bucket = plans_.buckets()[next];
      const int64_t first = layout_.ranges()[bucket.range].offset + bucket.first;
      std::copy_n(held[next].values(store_), bucket.count, gradient.begin() + first);
    }
  });
  count_tokens();
  for (const TrainedRange& range : layout_.ranges()) visit_range(range, gradient.data() + range.offset, visit);
}

void Trainer::visit_range(const TrainedRange& range, const float* values, GradientVisitor visit) const {
  for (const ParameterSlot& slot : layout_.trained())
    if (slot.offset >= range.offset && slot.offset < range.offset + range.count)
      visit(slot, {values + (slot.offset - range.offset), static_cast<size_t>(slot.spec.shape.elements())});
}
}  // namespace linnet
