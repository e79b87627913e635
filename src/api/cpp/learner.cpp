#include <algorithm>
#include <cmath>
#include <cstring>
#include "api/cpp/helpers.h"
#include "api/cpp/learner_state.h"
#include "base/error.h"
#include "engine/plan/store.h"
#include "models/nn/pipeline_parallel.h"

namespace linnet {
namespace {
// The first of the inputs that the batch lacks; "": none.
std::string missing_of(const std::set<std::string>& inputs, const Arrays* batch) {
  const auto found = std::ranges::find_if(
      inputs, [&](const std::string& input) { return batch && !is_reserved(input) && !batch->has(input); });
  return found == inputs.end() ? "" : *found;
}

void take_output(const TensorView& view, const std::string& name, Arrays& outputs, int64_t rows) {
  const HostTensor copy = dense_copy(view);
  TensorType type = view.type;
  if (type.shape.rank() > 0) type.shape.set(0, rows);
  outputs.set_bytes(name, type, {static_cast<const std::byte*>(copy.data()), type.bytes()});
}

int64_t first_axis(const TensorType& type) { return type.shape.rank() > 0 ? type.shape[0] : 0; }

// Equal types, except for at most as many rows.
bool is_part(const TensorType& part, const TensorType& whole) {
  if (part.dtype != whole.dtype || part.shape.rank() != whole.shape.rank() || part.shape.rank() == 0) return false;
  const int64_t rows = part.shape[0], most = whole.shape[0];
  return with_size(part.shape, 0, most) == whole.shape && rows <= most && rows >= 1;
}

void check_lengths(const std::string& name, int64_t most, std::span<const int32_t> lengths) {
  for (size_t row = 0; row < lengths.size(); ++row)
    if (lengths[row] < 1 || lengths[row] > most)
      fail_user("input \"", name, "\" has the length ", lengths[row], " in row ", row,
          "; it is at least 1 and at most ", most);
}

std::span<const int32_t> ids_of(std::span<const std::byte> bytes, int64_t most) {
  return {reinterpret_cast<const int32_t*>(bytes.data()),
      std::min(bytes.size() / sizeof(int32_t), static_cast<size_t>(most))};
}

int64_t samples_of(const Arrays& batch, const auto& kind) { return batch.samples > 0 ? batch.samples : kind.rows(); }

void check_fit_options(const FitOptions& options) {
  if (options.epochs < 0 || options.max_steps < 0 || options.patience < 0)
    fail_user("fit() needs epochs, max_steps and patience that are not negative");
  if (options.patience > 0 && !options.validation) fail_user("fit() with patience needs validation data");
}

void check_count(const std::string& where, int64_t count) {
  if (count == 0) throw Error(ErrorKind::kNumeric, where + ": the loss counts no row; are all its labels negative?");
}
}  // namespace

void Learner::State::fail_kind(const Arrays& batch, const char* does) const {
  fail_user("a batch of ", types_text(batch.types()), " is given; the learner ", does, types_text(kinds[0]->used),
      kinds.size() > 1 ? " and " + std::to_string(kinds.size() - 1) + " other shapes" : "");
}

const Learner::State::BatchKind& Learner::State::kind_of(const Arrays& batch, bool trained) const {
  const auto fits = [&](const BatchKind& kind) {
    if (trained && !kind.trained) return false;
    return std::ranges::all_of(kind.used,
        [&](const auto& input) { return batch.has(input.first) && batch.type(input.first) == input.second; });
  };
  for (const auto& kind : kinds)
    if (fits(*kind)) return *kind;
  fail_kind(batch, trained ? "trains on " : "has ");
}

const Learner::State::BatchKind& Learner::State::kind_for(const Arrays& batch) const {
  const BatchKind* best = nullptr;
  int64_t best_rows = 0;
  for (const auto& kind : kinds) {
    bool any = kind->used.empty(), fits = true;
    int64_t rows = 0;
    for (const auto& [name, type] : kind->used) {
      if (!batch.has(name)) continue;
      any = true;
      fits = fits && (batch.type(name) == type || is_part(batch.type(name), type));
      rows = std::max(rows, first_axis(type));
    }
    if (any && fits && (!best || rows < best_rows)) best = kind.get(), best_rows = rows;
  }
  if (!best) fail_kind(batch, "has ");
  return *best;
}

const Learner::State::BatchKind& Learner::State::given_kind(const char* function) {
  if (kinds.size() != 1) fail_user("the learner has several batch shapes; give ", function, "() a batch or a loader");
  const BatchKind& kind = *kinds[0];
  for (const auto& [name, type] : kind.used)
    if (!given.contains(name))
      fail_user("input \"", name, "\" was not set, or a batch has replaced it: learner.set<...>(\"", name,
          "\", values) of ", type);
  fill_mask(kind, kind.mask_rows);
  return kind;
}

// Missing inputs and padding rows become zeros, labels -1, which losses ignore. The first `samples` rows count.
void Learner::State::load(const Arrays& batch, const BatchKind& kind, int64_t samples) {
  for (const auto& [name, most] : kind.lengths)
    if (batch.has(name)) check_lengths(name, most, ids_of(batch.bytes(name), samples));
  for (const auto& [name, type] : kind.used) {
    std::byte* to = store.data(name);
    const std::span<const std::byte> bytes = batch.has(name) ? batch.bytes(name) : std::span<const std::byte>{};
    std::copy(bytes.begin(), bytes.end(), to);
    const bool marked = kind.labels.contains(name) || is_label(name, type.dtype);  // by -1, here or by a Loader
    const size_t row = type.bytes() / static_cast<size_t>(std::max<int64_t>(1, first_axis(type)));
    const size_t kept = marked ? std::min(bytes.size(), row * static_cast<size_t>(samples)) : bytes.size();
    std::memset(to + kept, kind.labels.contains(name) ? 0xff : 0, type.bytes() - kept);
  }
  given.clear();  // what set() gave is gone
  fill_mask(kind, samples);
}

void Learner::State::fill_mask(const BatchKind& kind, int64_t samples) const {
  if (kind.mask_rows == 0) return;
  float* mask = store.as<float>(kRowMask);
  for (int64_t row = 0; row < kind.mask_rows; ++row) mask[row] = row < samples ? 1.0F : 0.0F;
}

// Evaluates the batch twice: as it is padded, and with its last sample in the padding rows of all inputs that the count
// does not depend on. A loss that tells padding by labels or by the mask is the same.
bool Learner::State::counts_padding(const Arrays& batch, const BatchKind& kind) {
  load(batch, kind, batch.samples);
  const double padded = evaluate(kind, 0).sum;
  for (const auto& [name, type] : kind.used) {
    if (kind.inputs_of(state::kTokenCount).contains(name) || first_axis(type) != kind.rows()) continue;
    const size_t row = type.bytes() / static_cast<size_t>(first_axis(type));
    std::byte* const from = store.data(name) + static_cast<size_t>(batch.samples) * row;
    for (std::byte* to = from; to < store.data(name) + type.bytes(); to += row) std::copy_n(from - row, row, to);
  }
  const double repeated = evaluate(kind, 0).sum;
  return std::abs(padded - repeated) > 1e-4 * std::max(std::abs(padded), std::abs(repeated)) ||
         (!std::isfinite(padded) && std::isfinite(repeated));
}

// Refuses a loss that counts padding rows. Checks the first padded batch of each shape.
void Learner::State::check_padding(const Arrays& batch, const BatchKind& kind) {
  if (batch.samples == 0 || batch.samples >= kind.rows() || kind.checked_padding) return;
  if (!kind.knows_padding() || counts_padding(batch, kind))
    fail_user("a batch has ", batch.samples, " samples in ", kind.rows(),
        " rows, and the loss depends on those that only pad it: multiply by trace.row_mask() and count "
        "trace.sample_count(), or set LoaderOptions::pad_last to false");
  kind.checked_padding = true;
}

LossTotal Learner::State::evaluate(const BatchKind& kind, int64_t batch) {
  write_random(store.as<int32_t>(state::kRandom), options.seed, steps, batch);
  last_trained = nullptr;
  return trainer->evaluate(kind.number);
}

void Learner::State::check_step(double rate, size_t micro_batches) const {
  if (!options.training) fail_user("the learner was constructed without training and takes no steps");
  if (!std::isfinite(rate) || rate < 0)
    fail_user("the learning rate is ", rate, "; it must be finite and not negative");
  if (micro_batches != static_cast<size_t>(options.accumulate))
    fail_user("a step takes ", options.accumulate, " micro-batches, as the option accumulate says, ", "and was given ",
        micro_batches);
}

StepResult Learner::State::finish_step(const StepReport& report, const BatchKind& kind) {
  last_trained = &kind;
  last_count = report.tokens;
  last_outputs = Arrays();
  return {report.loss, report.grad_norm, report.tokens, report.finite, report.skipped};
}

Arrays Learner::State::outputs_of(
    const BatchKind& kind, const Arrays* batch, const std::map<int64_t, int64_t>& rows) const {
  Arrays outputs;
  for (const auto& [name, inputs] : kind.outputs) {
    if (!missing_of(inputs, batch).empty()) continue;
    const TensorView& view = trainer->plans().evaluate_executor(kind.number).output(name);
    take_output(view, name, outputs, find_or(rows, first_axis(view.type), first_axis(view.type)));
  }
  return outputs;
}

const ParameterSlot& Learner::State::slot_of(const std::string& name) const {
  if (const ParameterSlot* slot = find_parameter(layout, name)) return *slot;
  fail_user("the model has no parameter \"", name, "\"");
}

ParameterValues Learner::State::evaluated_values() const {
  const TrainingState& trained = weights().trainer->state();
  trained.pull();
  return trained.values(trained.evaluated());
}

Learner::Learner(const Module& model, TracedLoss loss, const LearnerOptions& options) {
  const DefaultFloats floats;
  state_ = std::make_unique<State>(model, std::move(loss), std::vector<InputTypes>{}, options);
  begin(model);
}

Learner::Learner(
    const Module& model, TracedLoss loss, const std::vector<InputTypes>& shapes, const LearnerOptions& options) {
  if (shapes.empty()) fail_user("a learner needs at least one batch shape; Loader::shapes() gives them");
  const DefaultFloats floats;
  state_ = std::make_unique<State>(model, std::move(loss), shapes, options);
  begin(model);
}

void Learner::begin(const Module& model) {
  state_->allocate();
  if (!state_->owner) const_cast<Module&>(model).visit([&](Module& module) { module.begin(*this); });
}

Learner::State& Learner::state() const {
  if (!state_) fail_user("the learner was moved from: it has no model any more");
  return *state_;
}

Learner::Learner(Learner&&) noexcept = default;
Learner& Learner::operator=(Learner&&) noexcept = default;
Learner::~Learner() = default;

StepResult Learner::step(const Arrays& batch, double rate) { return step(std::span(&batch, 1), rate); }

StepResult Learner::step(std::span<const Arrays> batches, double rate) {
  State& s = state();
  const Busy busy(s.busy, "a learner");
  s.check_step(rate, batches.size());
  const auto kinds = mapped(batches, [&](const Arrays& batch) { return &s.kind_of(batch, true); });
  for (size_t i = 0; i < batches.size(); ++i) s.check_padding(batches[i], *kinds[i]);
  const int64_t step = s.steps + 1;
  StepReport report{};
  if (s.options.accumulate == 1) {
    s.load(batches[0], *kinds[0], samples_of(batches[0], *kinds[0]));
    report = s.trainer->step(kinds[0]->number, rate, step);
  } else {
    for (size_t i = 0; i < batches.size(); ++i) {
      s.load(batches[i], *kinds[i], samples_of(batches[i], *kinds[i]));
      s.trainer->accumulate(kinds[i]->number, step, static_cast<int64_t>(i));
    }
    report = s.trainer->apply(rate, step);
  }
  s.steps = step;
  return s.finish_step(report, *kinds.back());
}

StepResult Learner::step(double rate) {
  State& s = state();
  const Busy busy(s.busy, "a learner");
  s.check_step(rate, 1);
  const State::BatchKind& kind = s.given_kind("step");
  const StepReport report = s.trainer->step(kind.number, rate, s.steps + 1);
  ++s.steps;
  return s.finish_step(report, kind);
}

std::string Learner::diagnose() const {
  State& s = state();
  const Busy busy(s.busy, "a learner");
  if (!s.last_trained) fail_user("there is no step to look at: none was taken, or evaluation followed");
  return s.trainer->find_non_finite(s.last_trained->number);
}

void Learner::set_bytes(const std::string& input, DType dtype, std::span<const std::byte> bytes) {
  State& s = state();
  const Busy busy(s.busy, "a learner");
  if (s.kinds.size() != 1) fail_user("the learner has several batch shapes; give step() a batch");
  const InputTypes& used = s.kinds[0]->used;
  const auto found = used.find(input);
  if (found == used.end()) fail_user("the loss has no input \"", input, "\"; it has ", types_text(used));
  const TensorType& type = found->second;
  if (type.dtype != dtype || type.bytes() != bytes.size())
    fail_user("input \"", input, "\" is ", type, ", and was given ", bytes.size() / dtype_size(dtype),
        " values of type ", dtype_name(dtype));
  const auto lengths = s.kinds[0]->lengths.find(input);
  if (lengths != s.kinds[0]->lengths.end()) check_lengths(input, lengths->second, ids_of(bytes, type.shape[0]));
  std::memcpy(s.store.data(input), bytes.data(), bytes.size());
  s.given.insert(input);
}

double Learner::evaluate() {
  State& s = state();
  const Busy busy(s.busy, "a learner");
  const State::BatchKind& kind = s.given_kind("evaluate");
  const LossTotal total = s.evaluate(kind, 0);
  s.last_outputs = s.outputs_of(kind);
  return total.mean();
}

Evaluation Learner::evaluate(
    Loader& loader, const std::vector<Metric>& metrics, const std::function<void()>& before_batch) {
  State& s = state();
  const Busy busy(s.busy, "a learner");
  const LoaderPosition before = loader.position();
  loader.seek({before.epoch, 0});
  Evaluation evaluation;
  double sum = 0;
  std::vector<MetricPart> parts(metrics.size());
  for (int64_t i = 0; i < loader.batches(); ++i) {
    if (before_batch) before_batch();
    const Arrays& batch = loader.next();
    const State::BatchKind& kind = s.kind_of(batch, false);
    s.check_padding(batch, kind);
    s.load(batch, kind, samples_of(batch, kind));
    const LossTotal total = s.evaluate(kind, i);
    sum += total.sum;
    evaluation.count += total.tokens;
    s.last_outputs = s.outputs_of(kind);
    for (size_t m = 0; m < metrics.size(); ++m) {
      if (!metrics[m].compute) fail_user("the metric \"", metrics[m].name, "\" has no function");
      const MetricPart part = metrics[m].compute(batch, s.last_outputs);
      parts[m].sum += part.sum, parts[m].count += part.count;
    }
  }
  loader.seek(before);
  check_count("evaluation", evaluation.count);
  evaluation.loss = sum / static_cast<double>(evaluation.count);
  for (size_t m = 0; m < metrics.size(); ++m)
    evaluation.metrics[metrics[m].name] = parts[m].count > 0 ? parts[m].sum / parts[m].count : 0;
  return evaluation;
}

Arrays Learner::predict(const Arrays& batch, int64_t number) {
  State& s = state();
  const Busy busy(s.busy, "a learner");
  const State::BatchKind& kind = s.kind_for(batch);
  std::map<int64_t, int64_t> rows;  // by the planned number
  for (const auto& [name, type] : kind.used) {
    if (!batch.has(name)) continue;
    const int64_t given = first_axis(batch.type(name)), known = rows.emplace(first_axis(type), given).first->second;
    if (known != given) fail_user("\"", name, "\" has ", given, " rows, and another array of the batch has ", known);
  }
  const int64_t planned = kind.mask_rows > 0 ? kind.mask_rows : kind.rows();
  s.load(batch, kind, batch.samples > 0 ? batch.samples : find_or(rows, planned, planned));
  s.evaluate(kind, number);
  s.last_outputs = s.outputs_of(kind, &batch, rows);
  const auto is_sum = [](const State::BatchKind::Output& output) {
    return output.name == state::kLossSum || output.name == state::kTokenCount;
  };
  const auto is_there = [&](const State::BatchKind::Output& output) {
    return !is_sum(output) && s.last_outputs.has(output.name);
  };
  const auto wanted = std::ranges::find_if_not(kind.outputs, is_sum);
  if (wanted != kind.outputs.end() && std::ranges::none_of(kind.outputs, is_there))
    fail_user("predict() was not given \"", missing_of(wanted->inputs, &batch), "\", on which the output \"",
        wanted->name, "\" depends");
  return s.last_outputs;
}

std::span<const float> Learner::output(const std::string& name) const {
  State& s = state();
  if (s.last_trained && !s.last_outputs.has(name)) {
    if (!std::ranges::count(s.last_trained->step_outputs, name))
      fail_user("steps keep no output \"", name, "\": trace.output(name, value, {.training = true}) keeps it");
    const TensorView& view = s.trainer->plans().train_executor(s.last_trained->number).output(name);
    take_output(view, name, s.last_outputs, first_axis(view.type));
  }
  return static_cast<const Arrays&>(s.last_outputs).get<float>(name);
}

std::span<float> Learner::parameter(const std::string& name) {
  State& s = state().weights();
  const ParameterSlot& slot = s.slot_of(name);
  if (s.layout.is_quantized(slot))
    fail_user("parameter \"", name, "\" is not stored in fp32: save() writes its values, load() reads them");
  s.trainer->state().pull();
  return {s.trainer->state().flat(state::kParameters) + slot.offset, static_cast<size_t>(slot.spec.shape.elements())};
}

void Learner::push() {
  State& s = state().weights();
  const Busy busy(s.busy, "a learner");
  s.trainer->state().reset_ema();
}

std::vector<float> Learner::gradient(const std::string& name) {
  State& s = state();
  const Busy busy(s.busy, "a learner");
  const ParameterSlot& slot = s.slot_of(name);
  if (slot.offset >= s.layout.trained_count())
    fail_user("parameter \"", name, "\" has no gradient that is kept: it is frozen, or not stored in fp32");
  if (s.options.accumulate > 1) fail_user("gradients of steps of several micro-batches are not kept");
  if (!s.last_trained) fail_user("there is no step whose gradient is known: none was taken, or evaluation followed");
  std::vector<float> gradient;
  const bool kept =
      s.trainer->visit_gradient(s.last_trained->number, [&](const ParameterSlot& of, std::span<const float> values) {
        if (of.offset == slot.offset) gradient.assign(values.begin(), values.end());
      });
  if (!kept || gradient.empty()) fail_user("the step has used the memory of its gradient for something else");
  for (float& value : gradient) value /= static_cast<float>(s.last_count);
  return gradient;
}

std::vector<ParameterSpec> Learner::parameters() const {
  return mapped(state().layout.parameters(), &ParameterSlot::spec);
}

int64_t Learner::steps() const { return state().steps; }
size_t Learner::memory_bytes() const { return state().store.total_bytes(); }

std::vector<MemoryUse> Learner::memory() const { return state().memory().kinds; }

Rate::Rate(double rate) : rate_([rate](int64_t) { return rate; }) {}
Rate::Rate(const Schedule& schedule) : rate_([schedule](int64_t step) { return learning_rate(schedule, step); }) {
  (void)rate_(1);  // reports a schedule without its end before the first step
}
Rate::Rate(std::function<double(int64_t)> rate) : rate_(std::move(rate)) {
  if (!rate_) fail_user("a learning rate is an empty function");
}

FitReport Learner::fit(Loader& loader, const FitOptions& options) {
  check_fit_options(options);
  State& s = state();
  FitReport report;
  std::vector<float> best_weights;
  int64_t worse = 0;
  bool go_on = true;
  const auto stop = [&](const char* reason) {
    if (go_on) report.reason = reason;
    go_on = false;
  };
  const int64_t epochs = options.epochs > 0 ? options.epochs : options.max_steps > 0 ? options.max_steps : 1;
  const int64_t last_epoch = loader.position().epoch + epochs;
  std::vector<Arrays> micro(s.options.accumulate > 1 ? static_cast<size_t>(s.options.accumulate) : 0);
  while (go_on && loader.position().epoch < last_epoch) {
    const int64_t epoch = loader.position().epoch;
    LossTotal total{};
    FitEvent event{.epoch = epoch};
    while (go_on && loader.position().epoch == epoch) {
      // A step may take micro-batches of the next epoch, so that every batch is trained on.
      for (Arrays& batch : micro) batch = loader.next();
      event.step = s.steps + 1;
      event.rate = options.rate(event.step);
      event.result = micro.empty() ? step(loader.next(), event.rate) : step(micro, event.rate);
      check_count("step " + std::to_string(event.step), event.result.count);
      if (!event.result.finite && !event.result.skipped)
        throw Error(ErrorKind::kNumeric,
            "step " + std::to_string(event.step) + ": loss or gradient is not finite; first in " + diagnose());
      total.sum += event.result.loss * static_cast<double>(event.result.count);
      total.tokens += event.result.count;
      event.mean_loss = total.mean();
      ++report.steps;
      if (options.on_step && !options.on_step(event)) stop("callback");
      if (options.max_steps > 0 && report.steps >= options.max_steps) stop("max_steps");
    }
    ++report.epochs;
    report.loss = total.mean();
    if (options.validation) {
      event.evaluation = evaluate(*options.validation, options.metrics, options.before_validation_batch);
      if (!std::isfinite(event.evaluation->loss))
        throw Error(
            ErrorKind::kNumeric, "epoch " + std::to_string(report.epochs) + ": the validation loss is not finite");
      if (!report.best || event.evaluation->loss < report.best->loss) {
        report.best = event.evaluation;
        worse = 0;
        if (options.patience > 0) {
          const TrainingState& holder = s.weights().trainer->state();
          const ParameterLayout& layout = s.weights().layout;
          holder.pull();
          const float* weights = holder.flat(holder.evaluated());
          best_weights.assign(weights, weights + layout.trained_count());
          const float* untrained = holder.flat(state::kParameters) + layout.trained_count();
          best_weights.insert(
              best_weights.end(), untrained, untrained + (layout.stored_count() - layout.trained_count()));
        }
      } else if (options.patience > 0 && ++worse >= options.patience) {
        stop("patience");
      }
    }
    if (options.on_epoch && !options.on_epoch(event)) stop("callback");
  }
  stop("epochs");
  if (!best_weights.empty()) {
    std::ranges::copy(best_weights, s.weights().trainer->state().flat(state::kParameters));
    push();
  }
  return report;
}
}  // namespace linnet
