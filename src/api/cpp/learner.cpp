#include "engine/plan/state_names.h"
#include "linnet/learner.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "base/error.h"
#include "api/cpp/busy.h"
#include "api/cpp/learner_state.h"
#include "api/cpp/own_op_scope.h"

namespace linnet {
namespace {

std::string types_text(const InputTypes& types) {
  std::string text;
  for (const auto& [name, type] : types) text += (text.empty() ? "" : ", ") + name + " " + type.text();
  return text.empty() ? "nothing" : text;
}

// The loss is two scalars of the graph that is traced.
void check_loss(const Loss& loss, const Graph& graph) {
  const auto check = [&](Tensor tensor, const char* name) {
    if (!tensor.defined())
      fail_user(std::string("the loss has no ") + name +
                "; a loss is {.sum = ..., .count = ...}, the sum over samples and how many there are");
    if (tensor.graph != &graph) fail_user(std::string("the ") + name + " of the loss is a tensor of another graph");
    const TensorType type = tensor.type();
    if (type.shape.rank() != 0 || !is_float(type.dtype))
      throw Error(ErrorKind::kShape, std::string("the ") + name + " of the loss is " + type.text() +
                                         ", expected a scalar f32[]; sum(x) makes one");
  };
  check(loss.sum, "sum");
  check(loss.count, "count");
}

void check_rate(double rate) {
  if (!std::isfinite(rate) || rate < 0)
    fail_user("the learning rate is " + std::to_string(rate) + "; it must be finite and not negative");
}

// The slot of a dense tensor's elements; copies one that has strides.
void copy_elements(const TensorView& view, std::byte* to) {
  const size_t size = dtype_size(view.type.dtype);
  const auto* from = static_cast<const std::byte*>(view.data);
  if (view.strides == dense_strides(view.shape())) {
    std::memcpy(to, from, view.type.bytes());
    return;
  }
  const int64_t count = view.elements();
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, offset = 0;
    for (int axis = view.shape().rank() - 1; axis >= 0; --axis) {
      offset += rest % view.shape()[axis] * view.strides[axis];
      rest /= view.shape()[axis];
    }
    std::memcpy(to + static_cast<size_t>(i) * size, from + static_cast<size_t>(offset) * size, size);
  }
}

int64_t first_axis(const TensorType& type) { return type.shape.rank() > 0 ? type.shape[0] : 0; }

// The same but for the number of rows, which is at most that of `whole`.
bool is_part(const TensorType& part, const TensorType& whole) {
  if (part.dtype != whole.dtype || part.shape.rank() != whole.shape.rank() || part.shape.rank() == 0) return false;
  for (int axis = 1; axis < part.shape.rank(); ++axis)
    if (part.shape[axis] != whole.shape[axis]) return false;
  return part.shape[0] <= whole.shape[0] && part.shape[0] >= 1;
}

}  // namespace

Learner::State::State(const Module& module, TracedLoss given, const std::vector<InputTypes>& shapes,
                      const LearnerOptions& all)
    : model(&module),
      loss(std::move(given)),
      options(all),
      explicit_types(shapes.empty()),
      trainer_options(linnet::trainer_options(all)),
      layout(module, parameter_groups(all)),
      store(*trainer_options.backend) {
  if (!loss) fail_user("a learner needs a loss function");
  if (layout.parameters().empty())
    fail_user("the model has no parameters; they are members of modules: Linear, Parameter");
  shared = {store.add_region("arena", MemoryKind::kActivations, 0),
            store.add_region("workspace", MemoryKind::kWorkspace, 0)};
  trainer = std::make_unique<Trainer>(layout, store, shared, trainer_options);
  if (explicit_types) add_kind(nullptr, options.training);
  for (const InputTypes& types : shapes) add_kind(&types, options.training);
  for (const InputTypes& types : options.evaluation_shapes) add_kind(&types, false);
  for (const auto& [name, bytes] : capacities)
    store.bind(name, {store.add_region(name, MemoryKind::kBatch, bytes), 0}, bytes);
  plan();
  store.allocate();
  store.touch();
  trainer->bind();
  trainer->initialize();
}

LossFunction Learner::State::traced(const InputTypes* types) const {
  return [this, types](Trace& trace) {
    Tracer tracer(trace, types);
    trace.set_model(model);
    const OwnOpDecomposition own_ops(!trainer_options.backend->has_references);
    const Loss traced = loss(tracer);
    check_loss(traced, trace.graph());
    return traced;
  };
}

// Finds out what the loss uses of a batch shape.
void Learner::State::add_kind(const InputTypes* types, bool trained) {
  for (const auto& kind : kinds)
    if (types && kind->types == *types) return;
  BatchKind& kind = *kinds.emplace_back(std::make_unique<BatchKind>());
  kind.trained = trained;
  if (types) kind.types = *types;
  const Graph graph = evaluate_graph(layout, traced(types ? &kind.types : nullptr), state::kParameters);
  for (const GraphInput& input : graph.inputs()) {
    if (store.has(input.name)) continue;  // a state of the trainer
    const TensorType type = graph.value(input.value).type;
    kind.used[input.name] = type;
    capacities[input.name] = std::max(capacities[input.name], type.bytes());
  }
  if (kind.used.empty()) fail_user("the loss uses no input; it declares them by trace.input()");
  for (const GraphOutput& output : graph.outputs()) kind.outputs.push_back(output.name);
}

void Learner::State::plan() {
  const auto add = [&](BatchKind& kind, bool trained) {
    const LossFunction traced_loss = traced(explicit_types ? nullptr : &kind.types);
    kind.number = trained ? trainer->add_shape(traced_loss) : trainer->add_evaluation_shape(traced_loss);
  };
  const bool limited = options.memory > 0;
  for (const auto& kind : kinds)
    if (kind->trained) add(*kind, !limited);
  if (limited && options.training) trainer->plan_training_within_memory(0);
  for (const auto& kind : kinds)
    if (!kind->trained) add(*kind, false);
  if (limited && store.total_bytes() > options.memory)
    fail_user("the model does not fit within " + std::to_string(options.memory) + " bytes: it needs at least " +
              std::to_string(store.total_bytes()));
}

const Learner::State::BatchKind& Learner::State::kind_of(const Arrays& batch, bool trained) const {
  const auto fits = [&](const BatchKind& kind) {
    if (trained && !kind.trained) return false;
    return std::ranges::all_of(kind.used, [&](const auto& input) {
      return batch.has(input.first) && batch.type(input.first) == input.second;
    });
  };
  for (const auto& kind : kinds)
    if (fits(*kind)) return *kind;
  fail_user("a batch of " + types_text(batch.types()) + " is given; the learner " + (trained ? "trains on " : "has ") +
            types_text(kinds[0]->used) +
            (kinds.size() > 1 ? " and " + std::to_string(kinds.size() - 1) + " other shapes" : ""));
}

const Learner::State::BatchKind& Learner::State::kind_for(const Arrays& batch) const {
  const BatchKind* best = nullptr;
  int64_t best_rows = 0;
  for (const auto& kind : kinds) {
    bool any = false, fits = true;
    int64_t rows = 0;
    for (const auto& [name, type] : kind->used) {
      if (!batch.has(name)) continue;
      any = true;
      fits = fits && (batch.type(name) == type || is_part(batch.type(name), type));
      rows = std::max(rows, first_axis(type));
    }
    if (any && fits && (!best || rows < best_rows)) best = kind.get(), best_rows = rows;
  }
  if (!best)
    fail_user("a batch of " + types_text(batch.types()) + " is given; the learner has " + types_text(kinds[0]->used) +
              (kinds.size() > 1 ? " and " + std::to_string(kinds.size() - 1) + " other shapes" : ""));
  return *best;
}

// Inputs that the batch lacks, and rows behind its own, are zeros; labels are -1, which losses leave out.
void Learner::State::load(const Arrays& batch, const BatchKind& kind) const {
  for (const auto& [name, type] : kind.used) {
    std::byte* to = store.data(name);
    const std::span<const std::byte> bytes = batch.has(name) ? batch.bytes(name) : std::span<const std::byte>{};
    std::copy(bytes.begin(), bytes.end(), to);
    const bool is_label = type.dtype == DType::kI32 && (name == "labels" || name == "targets");
    std::memset(to + bytes.size(), is_label ? 0xff : 0, type.bytes() - bytes.size());
  }
}

void Learner::State::check_step(double rate, size_t micro_batches) const {
  if (!options.training) fail_user("the learner was constructed with training = false and takes no steps");
  check_rate(rate);
  if (micro_batches != static_cast<size_t>(options.accumulate))
    fail_user("a step takes " + std::to_string(options.accumulate) + " micro-batches, as the option accumulate says, " +
              "and was given " + std::to_string(micro_batches));
}

StepResult Learner::State::finish_step(const StepReport& report, const BatchKind& kind) {
  last_trained = &kind;
  last_count = report.tokens;
  return {report.loss, report.grad_norm, report.tokens, report.finite, report.skipped};
}

Arrays Learner::State::outputs_of(const BatchKind& kind, int64_t rows) const {
  int64_t whole = 0;
  for (const auto& [name, type] : kind.used) whole = std::max(whole, first_axis(type));
  Arrays outputs;
  for (const std::string& name : kind.outputs) {
    const TensorView& view = trainer->evaluation_output(kind.number, name);
    std::vector<std::byte> bytes(view.type.bytes());
    copy_elements(view, bytes.data());
    TensorType type = view.type;
    if (rows > 0 && rows < whole && first_axis(type) == whole) {
      bytes.resize(bytes.size() / static_cast<size_t>(whole) * static_cast<size_t>(rows));
      type.shape.set(0, rows);
    }
    outputs.set_bytes(name, type, bytes);
  }
  return outputs;
}

const ParameterSlot& Learner::State::slot_of(const std::string& name) const {
  for (const ParameterSlot& slot : layout.parameters())
    if (slot.spec.name == name) return slot;
  fail_user("the model has no parameter \"" + name + "\"");
}

Learner::Learner(const Module& model, TracedLoss loss, const LearnerOptions& options)
    : state_(std::make_unique<State>(model, std::move(loss), std::vector<InputTypes>{}, options)) {}

Learner::Learner(const Module& model, TracedLoss loss, const std::vector<InputTypes>& shapes,
                 const LearnerOptions& options) {
  if (shapes.empty()) fail_user("a learner needs at least one batch shape; Loader::shapes() gives them");
  state_ = std::make_unique<State>(model, std::move(loss), shapes, options);
}

Learner::~Learner() = default;

StepResult Learner::step(const Arrays& batch, double rate) { return step(std::span(&batch, 1), rate); }

StepResult Learner::step(std::span<const Arrays> batches, double rate) {
  State& s = *state_;
  const Busy busy(s.busy, "a learner");
  s.check_step(rate, batches.size());
  std::vector<const State::BatchKind*> kinds;
  for (const Arrays& batch : batches) kinds.push_back(&s.kind_of(batch, true));
  const int64_t step = s.steps + 1;
  StepReport report{};
  if (s.options.accumulate == 1) {
    s.load(batches[0], *kinds[0]);
    report = s.trainer->step(kinds[0]->number, rate, step);
  } else {
    for (size_t i = 0; i < batches.size(); ++i) {
      s.load(batches[i], *kinds[i]);
      s.trainer->accumulate(kinds[i]->number, step, static_cast<int64_t>(i));
    }
    report = s.trainer->apply(rate, step);
  }
  s.steps = step;
  return s.finish_step(report, *kinds.back());
}

StepResult Learner::step(double rate) {
  State& s = *state_;
  const Busy busy(s.busy, "a learner");
  if (s.kinds.size() != 1) fail_user("the learner has several batch shapes; give step() a batch");
  s.check_step(rate, 1);
  const StepReport report = s.trainer->step(s.kinds[0]->number, rate, s.steps + 1);
  ++s.steps;
  return s.finish_step(report, *s.kinds[0]);
}

void Learner::set_bytes(const std::string& input, DType dtype, std::span<const std::byte> bytes) {
  const State& s = *state_;
  if (s.kinds.size() != 1) fail_user("the learner has several batch shapes; give step() a batch");
  const InputTypes& used = s.kinds[0]->used;
  const auto found = used.find(input);
  if (found == used.end()) fail_user("the loss has no input \"" + input + "\"; it has " + types_text(used));
  const TensorType& type = found->second;
  if (type.dtype != dtype || type.bytes() != bytes.size())
    fail_user("input \"" + input + "\" is " + type.text() + ", and was given " +
              std::to_string(bytes.size() / dtype_size(dtype)) + " values of type " + dtype_name(dtype));
  std::memcpy(s.store.data(input), bytes.data(), bytes.size());
}

double Learner::evaluate() {
  State& s = *state_;
  if (s.kinds.size() != 1) fail_user("the learner has several batch shapes; give evaluate() a loader");
  const LossTotal total = s.trainer->evaluate(s.kinds[0]->number);
  s.last_trained = nullptr;
  s.last_outputs = s.outputs_of(*s.kinds[0], 0);
  return total.sum / static_cast<double>(total.tokens);
}

Evaluation Learner::evaluate(Loader& loader, const std::vector<Metric>& metrics) {
  State& s = *state_;
  loader.seek({loader.position().epoch, 0});
  Evaluation evaluation;
  double sum = 0;
  std::vector<MetricPart> parts(metrics.size());
  for (int64_t i = 0; i < loader.batches(); ++i) {
    const Arrays& batch = loader.next();
    const State::BatchKind& kind = s.kind_of(batch, false);
    s.load(batch, kind);
    const LossTotal total = s.trainer->evaluate(kind.number);
    sum += total.sum;
    evaluation.count += total.tokens;
    s.last_outputs = s.outputs_of(kind, 0);
    for (size_t m = 0; m < metrics.size(); ++m) {
      if (!metrics[m].compute) fail_user("the metric \"" + metrics[m].name + "\" has no function");
      const MetricPart part = metrics[m].compute(batch, s.last_outputs);
      parts[m].sum += part.sum, parts[m].count += part.count;
    }
  }
  s.last_trained = nullptr;
  loader.seek({loader.position().epoch - 1, 0});
  evaluation.loss = sum / static_cast<double>(evaluation.count);
  for (size_t m = 0; m < metrics.size(); ++m)
    evaluation.metrics[metrics[m].name] = parts[m].count > 0 ? parts[m].sum / parts[m].count : 0;
  return evaluation;
}

Arrays Learner::predict(const Arrays& batch) {
  State& s = *state_;
  const Busy busy(s.busy, "a learner");
  const State::BatchKind& kind = s.kind_for(batch);
  int64_t rows = 0, fewer = 0;
  for (const auto& [name, type] : kind.used) {
    if (!batch.has(name)) continue;
    const int64_t given = first_axis(batch.type(name));
    rows = std::max(rows, given);
    if (given == first_axis(type)) continue;
    if (fewer > 0 && given != fewer)
      fail_user("\"" + name + "\" has " + std::to_string(given) + " rows, and another array of the batch has " +
                std::to_string(fewer));
    fewer = given;
  }
  s.load(batch, kind);
  s.trainer->evaluate(kind.number);
  s.last_trained = nullptr;
  s.last_outputs = s.outputs_of(kind, rows);
  return s.last_outputs;
}

std::span<const float> Learner::output(const std::string& name) const {
  return static_cast<const Arrays&>(state_->last_outputs).get<float>(name);
}

std::span<float> Learner::parameter(const std::string& name) {
  State& s = *state_;
  const ParameterSlot& slot = s.slot_of(name);
  if (s.layout.is_quantized(slot))
    fail_user("parameter \"" + name + "\" is not stored in fp32: save() writes its values, load() reads them");
  s.trainer->pull_states();
  return {s.trainer->state(state::kParameters) + slot.offset, static_cast<size_t>(slot.spec.shape.elements())};
}

void Learner::push() { state_->trainer->reset_ema(); }

std::vector<float> Learner::gradient(const std::string& name) {
  State& s = *state_;
  const ParameterSlot& slot = s.slot_of(name);
  if (slot.offset >= s.layout.trained_count()) fail_user("parameter \"" + name + "\" is frozen and has no gradient");
  if (s.options.accumulate > 1) fail_user("gradients of steps of several micro-batches are not kept");
  if (!s.last_trained) fail_user("there is no step whose gradient is known: none was taken, or evaluation followed");
  std::vector<float> gradient;
  const bool kept =
      s.trainer->visit_gradient(s.last_trained->number, [&](const TrainedRange& range, std::span<const float> values) {
        if (slot.offset < range.offset || slot.offset >= range.offset + range.count) return;
        const auto part = values.subspan(static_cast<size_t>(slot.offset - range.offset),
                                         static_cast<size_t>(slot.spec.shape.elements()));
        gradient.assign(part.begin(), part.end());
      });
  if (!kept || gradient.empty()) fail_user("the step has used the memory of its gradient for something else");
  for (float& value : gradient) value /= static_cast<float>(s.last_count);
  return gradient;
}

std::vector<ParameterSpec> Learner::parameters() const {
  std::vector<ParameterSpec> specs;
  for (const ParameterSlot& slot : state_->layout.parameters()) specs.push_back(slot.spec);
  return specs;
}

int64_t Learner::steps() const { return state_->steps; }
size_t Learner::memory_bytes() const { return state_->store.total_bytes(); }

std::vector<MemoryUse> Learner::memory() const {
  std::vector<MemoryUse> uses;
  const Store& store = state_->store;
  for (const Store::Region& region : store.regions()) {
    const std::string kind = memory_kind_name(region.kind);
    const size_t bytes = store.device().footprint(region.bytes);
    const auto found = std::ranges::find(uses, kind, &MemoryUse::kind);
    if (found == uses.end())
      uses.push_back({kind, bytes});
    else
      found->bytes += bytes;
  }
  return uses;
}

}  // namespace linnet
