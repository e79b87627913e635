#include "training/check/check.h"
#include <fmt/format.h>
#include "base/process.h"
#include "base/timeline.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/plan/store.h"

namespace linnet {
Finding verdict(bool passes, std::string figure) {
  return {passes ? Verdict::kPass : Verdict::kFail, std::move(figure)};
}

Finding skipped(std::string why) { return {Verdict::kSkipped, std::move(why)}; }

const Graph& evaluation_graph(const CheckSubject& subject) {
  return subject.trainer.plans().by_name().at("evaluate." + std::to_string(subject.shape))->graph;
}

void restart(CheckSubject& subject) {
  subject.reset();
  const TrainingState& states = subject.trainer.state();
  for (const std::string& state : states.names())
    if (state != state::kParameters) std::fill_n(states.flat(state), states.layout().trained_count(), 0.0F);
  for (const PackedState& state : states.packed()) std::memset(states.store().data(state.name), 0, state.type.bytes());
  states.push();
  load(subject, subject.batch);
}

void load(const CheckSubject& subject, const CheckBatch& batch) {
  subject.before_step();
  Batch views;
  views.shape_index = subject.shape;
  for (const auto& [name, bytes] : batch) views.arrays.push_back({name.c_str(), bytes});
  subject.trainer.load(views);
}

double difference(double a, double b) {
  const double larger = std::max(std::abs(a), std::abs(b));
  return larger > 0 ? std::abs(a - b) / larger : a == b ? 0 : INFINITY;
}

namespace {
// The number of classes that the loss chooses from; 0 if the graph has no such loss.
int64_t class_count(const Graph& graph) {
  if (graph.find_input("reference")) return 0;  // preferences: the classes are of the answers' probabilities
  for (const Node& node : graph.nodes()) {
    if (node.op == &kCrossEntropy) return graph.value(node.in[0]).type.shape[-1];
    if (node.op == &kLinearCrossEntropy)
      return node.attrs.as<LinearCrossEntropyAttrs>().weight_shape(graph.value(node.in[1]).type)[0];
  }
  return 0;
}

TensorType input_type(const CheckSubject& subject, const std::string& name) {
  const Graph& graph = evaluation_graph(subject);
  const std::optional<ValueId> input = graph.find_input(name);
  return input ? graph.value(*input).type : TensorType{};
}

std::span<int32_t> ids(CheckBatch& batch, const std::string& name) {
  std::vector<std::byte>& bytes = batch.at(name);
  return {reinterpret_cast<int32_t*>(bytes.data()), bytes.size() / sizeof(int32_t)};
}

int64_t rows_of(const CheckSubject& subject) {
  for (const auto& [name, bytes] : subject.batch)
    if (name != subject.flat_positions)
      if (const TensorType type = input_type(subject, name); type.shape.rank() > 1) return type.shape[0];
  return 0;
}

// The sum of losses with the current weights.
LossTotal loss_of(const CheckSubject& subject, const CheckBatch& batch) {
  load(subject, batch);
  return subject.trainer.evaluate(subject.shape);
}

// With random weights the loss should be that of a guess among all classes. It is the training loss, as batch
// normalization has no statistics for evaluation yet.
Finding check_initial_loss(CheckSubject& subject) {
  restart(subject);
  const StepReport report = subject.trainer.step(subject.shape, 0, 1);
  const double loss = report.loss;
  const int64_t classes = class_count(evaluation_graph(subject));
  if (report.tokens == 0) return verdict(false, "the batch has no targets");
  if (!std::isfinite(loss)) return verdict(false, "the loss is not finite");
  if (classes < 2) return skipped(fmt::format("loss {:.3f}; the loss is not over classes", loss));
  const double guess = std::log(static_cast<double>(classes));
  const double most = 1.25 * guess + 1 + 3 / std::sqrt(static_cast<double>(report.tokens));
  const bool fits = loss < most && (!subject.is_fresh || loss > 0.5 * guess);
  return verdict(fits,
      fmt::format("{:.3f}; a guess among {} classes has {:.3f}, at most {:.3f} is usual", loss, classes, guess, most));
}

Finding check_overfitting(CheckSubject& subject, std::optional<Finding>& throughput, std::optional<Finding>& memory) {
  constexpr int64_t kMostSteps = 150;
  constexpr double kEnough = 0.7, kLeastRate = 5e-4;  // of the first loss; 150 steps are few
  constexpr double kMostSeconds = 20;
  restart(subject);
  const double began = now();
  double first = 0, loss = 0, step_seconds = 1e9;
  int64_t step = 0, tokens = 0;
  while (step < kMostSteps && (step < 3 || now() - began < kMostSeconds)) {
    // Adam's first steps are as long as the rate: warm up.
    const double rate = std::max(subject.learning_rate, kLeastRate) * std::min(1.0, static_cast<double>(step + 1) / 10);
    subject.before_step();
    const double before = now();
    const StepReport report = subject.trainer.step(subject.shape, rate, ++step);
    step_seconds = std::min(step_seconds, now() - before);
    loss = report.loss, tokens = report.tokens;
    if (step == 1) first = loss;
    if (!report.finite || loss < 0.3 * first) break;
  }
  const auto taken = static_cast<double>(resident_bytes());
  throughput = verdict(true, fmt::format("{:.3g} a second of what the loss counts, {:.1f} ms a step of this batch",
                                 static_cast<double>(tokens) / step_seconds, step_seconds * 1e3));
  const auto planned = static_cast<double>(subject.planned_bytes);
  if (subject.planned_bytes > 0)
    memory = verdict(
        taken < 1.1 * planned + 64e6, fmt::format("{:.1f} MB taken, {:.1f} MB planned", taken / 1e6, planned / 1e6));
  const bool out_of_time = step < kMostSteps && loss > kEnough * first;
  const ParameterLayout& layout = subject.trainer.state().layout();
  const bool is_part = 2 * layout.trained_count() < layout.parameter_count();  // adapters memorize less
  return verdict(std::isfinite(loss) && loss < (out_of_time || is_part ? 0.95 : kEnough) * first,
      fmt::format("from {:.3f} to {:.3f} in {} steps{}", first, std::isnan(loss) ? NAN : loss, step,
          out_of_time ? ", stopped by the time" : ""));
}

Finding check_determinism(CheckSubject& subject) {
  const auto steps = [&] {
    restart(subject);
    std::vector<double> figures;
    for (int64_t step = 1; step <= 2; ++step) {
      const StepReport report = subject.trainer.step(subject.shape, subject.learning_rate, step);
      figures.insert(figures.end(), {report.loss, report.grad_norm});
    }
    return figures;
  };
  const std::vector<double> first = steps(), second = steps();
  // Equal NaNs count as the same; other checks report them.
  const bool equal =
      std::ranges::equal(first, second, [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); });
  return verdict(equal, fmt::format("loss after a step {:.9g}, again {:.9g}", first[2], second[2]));
}

Finding check_drift(CheckSubject& subject) {
  if (!subject.bf16_loss) return skipped("no bf16 instructions here, or bf16 is not to be had");
  restart(subject);
  const double loss = loss_of(subject, subject.batch).mean(), other = subject.bf16_loss();
  return verdict(
      difference(loss, other) < 0.02, fmt::format("loss {:.5f} in fp32, {:.5f} in bf16: {:.2g} relative, 0.02 allowed",
                                          loss, other, difference(loss, other)));
}

// Causality, padding, and independence of other rows.

constexpr double kRounding = 2e-5;  // relative difference of sums in another order

int64_t row_bytes(const CheckSubject& subject, const std::string& name) {
  const TensorType type = input_type(subject, name);
  return static_cast<int64_t>(type.bytes()) / type.shape[0];
}

// Replaces [from, to) of a row by other tokens of the batch, which are in the vocabulary.
void replace(std::span<int32_t> row, int64_t from, int64_t to, std::span<const int32_t> all) {
  for (int64_t i = from; i < to; ++i)
    for (size_t next = static_cast<size_t>(7 * i + 3), tries = 0; tries < all.size(); ++next, ++tries)
      if (const int32_t token = all[next % all.size()]; token != row[i]) {
        row[i] = token;
        break;
      }
}

struct Rows {
  int64_t count, length;
};
Rows sizes(const CheckSubject& subject, const CheckSequence& sequence) {
  const Shape shape = input_type(subject, sequence.tokens).shape;
  return {shape[0], shape[1]};
}

// How much the loss of a batch changes with the tokens [from(row), to) of each row.
double change_by_tokens(const CheckSubject& subject, CheckBatch& batch, const CheckSequence& sequence,
    FunctionRef<int64_t(int64_t row)> from, int64_t to) {
  const double before = loss_of(subject, batch).sum;
  const Rows rows = sizes(subject, sequence);
  const auto tokens = ids(batch, sequence.tokens);
  const std::vector<int32_t> all(tokens.begin(), tokens.end());
  for (int64_t row = 0; row < rows.count; ++row)
    replace(tokens.subspan(row * rows.length, static_cast<size_t>(rows.length)), from(row), to, all);
  return difference(before, loss_of(subject, batch).sum);
}

struct Positions {
  int64_t from, to;
};

// How much the loss of the targets at `kept` positions changes with the tokens at `replaced` ones.
double change_of_loss(CheckSubject& subject, const CheckSequence& sequence, Positions kept, Positions replaced) {
  restart(subject);
  const int64_t length = sizes(subject, sequence).length;
  CheckBatch batch = subject.batch;
  const auto targets = ids(batch, sequence.targets);
  for (int64_t i = 0; i < std::ssize(targets); ++i)
    if (i % length < kept.from || i % length >= kept.to) targets[i] = -1;
  const auto from = [&](int64_t) { return replaced.from; };
  return change_by_tokens(subject, batch, sequence, from, replaced.to);
}

const CheckSequence* causal_sequence(const CheckSubject& subject) {
  return find_item(subject.sequences, true, [](const CheckSequence& sequence) { return !sequence.targets.empty(); });
}

// The middle of the longest row, or of the positions that have a target.
int64_t middle(const CheckSubject& subject, const CheckSequence& sequence) {
  CheckBatch batch = subject.batch;
  if (!sequence.lengths.empty()) return std::ranges::max(ids(batch, sequence.lengths)) / 2;
  const auto targets = ids(batch, sequence.targets);
  std::vector<int64_t> positions;
  for (size_t i = 0; i < targets.size(); ++i)
    if (targets[i] >= 0) positions.push_back(static_cast<int64_t>(i) % sizes(subject, sequence).length);
  std::ranges::sort(positions);
  return positions.empty() ? 0 : positions[positions.size() / 2];
}

// Ignores the labels of tokens beyond the lengths, where each token has a label. Models with two sequences do so.
void cut_labels(const CheckSubject& subject, CheckBatch& batch, const CheckSequence& sequence) {
  const auto lengths = ids(batch, sequence.lengths), tokens = ids(batch, sequence.tokens);
  const size_t length = tokens.size() / lengths.size();
  for (const auto& [name, bytes] : batch)
    if (subject.sequences.size() == 1 && contains(subject.labels, name) && bytes.size() == tokens.size_bytes() &&
        input_type(subject, name).dtype == DType::kI32)
      for (size_t i = 0; i < tokens.size(); ++i)
        if (static_cast<int32_t>(i % length) >= lengths[i / length]) ids(batch, name)[i] = -1;
}

CheckBatch repeated(const CheckSubject& subject, int64_t row, int64_t rows) {
  CheckBatch batch = subject.batch;
  for (auto& [name, bytes] : batch) {
    const int64_t size = row_bytes(subject, name);
    const std::vector<std::byte> kept(bytes.begin() + row * size, bytes.begin() + (row + 1) * size);
    for (int64_t other = 0; other < rows; ++other) std::ranges::copy(kept, bytes.begin() + other * size);
  }
  return batch;
}

CheckBatch rotated(const CheckSubject& subject, int64_t rows) {
  CheckBatch batch = subject.batch;
  for (auto& [name, bytes] : batch)
    if (name != subject.flat_positions && input_type(subject, name).shape[0] == rows)
      std::rotate(bytes.begin(), bytes.end() - row_bytes(subject, name), bytes.end());
  if (subject.flat_positions.empty()) return batch;
  const int64_t length = sizes(subject, subject.sequences.front()).length;
  for (int32_t& position : ids(batch, subject.flat_positions))
    if (position >= 0) position = static_cast<int32_t>((position + length) % (rows * length));
  return batch;
}

Finding check_causality(CheckSubject& subject) {
  const CheckSequence* sequence = causal_sequence(subject);
  if (!sequence) return skipped("the model does not predict token by token");
  const int64_t at = middle(subject, *sequence);
  const double change = change_of_loss(subject, *sequence, {0, at}, {at, sizes(subject, *sequence).length});
  return verdict(change < kRounding,
      fmt::format("other tokens from position {} on change the loss before it by {:.2g} relative", at, change));
}

Finding check_context(CheckSubject& subject) {
  const CheckSequence* sequence = causal_sequence(subject);
  if (!sequence) return skipped("the model does not predict token by token");
  const int64_t at = middle(subject, *sequence);
  if (at < 2) return skipped("the rows are too short");
  const double change = change_of_loss(subject, *sequence, {at, at + 1}, {0, at});
  return verdict(
      change > 1e-7, fmt::format("other tokens before position {} change its loss by {:.2g} relative", at, change));
}

Finding check_padding(CheckSubject& subject) {
  double worst = -1;
  restart(subject);
  for (const CheckSequence& sequence : subject.sequences) {
    if (sequence.lengths.empty() || !subject.flat_positions.empty()) continue;
    CheckBatch batch = subject.batch;
    for (int32_t& length : ids(batch, sequence.lengths)) length = std::min(length, std::max(1, length / 2));
    cut_labels(subject, batch, sequence);
    const auto from = [lengths = ids(batch, sequence.lengths)](int64_t row) { return lengths[row]; };
    worst = std::max(worst, change_by_tokens(subject, batch, sequence, from, sizes(subject, sequence).length));
  }
  if (worst < 0) return skipped("the rows have no padding");
  return verdict(
      worst < kRounding, fmt::format("other tokens beyond the lengths change the loss by {:.2g} relative", worst));
}

Finding check_rows(CheckSubject& subject) {
  const int64_t rows = rows_of(subject);
  if (rows < 2) return skipped("the batch has one row");
  if (!subject.rows_are_apart) return skipped("texts of a batch learn from each other");
  for (const auto& [name, bytes] : subject.batch)
    if (subject.flat_positions.empty() && input_type(subject, name).shape[0] != rows)
      return skipped("rows belong together");
  restart(subject);
  const double whole = loss_of(subject, subject.batch).sum;
  double worst = difference(whole, loss_of(subject, rotated(subject, rows)).sum);
  if (subject.flat_positions.empty() && rows <= 64) {
    const double alone = sum_of<double>(rows,
        [&](int64_t row) { return loss_of(subject, repeated(subject, row, rows)).sum / static_cast<double>(rows); });
    worst = std::max(worst, difference(whole, alone));
  }
  return verdict(worst < kRounding,
      fmt::format("{} rows in another order, or each among copies of itself: {:.2g} relative", rows, worst));
}

// Compares the loss of row 0 in its own shape and padded to another plan's.
Finding check_lengths(CheckSubject& subject) {
  const auto plans = subject.trainer.plans().by_name();
  if (subject.sequences.empty() || !subject.flat_positions.empty() || subject.sequences[0].lengths.empty() ||
      !plans.contains("evaluate.1"))
    return skipped("there is one length");
  if (!subject.rows_are_apart) return skipped("texts of a batch learn from each other");
  restart(subject);
  CheckSubject other = subject;
  other.shape = subject.shape == 0 ? 1 : subject.shape - 1;
  const auto row_alone = [&](const CheckSubject& of_shape) {
    CheckBatch batch;
    for (const auto& [name, bytes] : subject.batch) {
      const TensorType type = input_type(of_shape, name);
      std::vector<std::byte>& to = batch[name];
      to.resize(type.bytes());
      if (contains(subject.labels, name) && type.dtype == DType::kI32) std::ranges::fill(to, std::byte{0xff});
      const auto row = static_cast<int64_t>(type.bytes()) / type.shape[0];
      std::memcpy(to.data(), bytes.data(), static_cast<size_t>(std::min(row, row_bytes(subject, name))));
    }
    // Both are cut to the shorter shape.
    for (const CheckSequence& sequence : subject.sequences) {
      if (sequence.lengths.empty()) continue;
      int32_t& length = ids(batch, sequence.lengths)[0];
      for (const CheckSubject* each : {&other, &subject})
        length = std::min(length, static_cast<int32_t>(sizes(*each, sequence).length));
      cut_labels(of_shape, batch, sequence);
      if (subject.labels_are_positions)
        for (int32_t& position : ids(batch, subject.labels[0])) position = std::min(position, length - 1);
    }
    return loss_of(of_shape, batch).sum;
  };
  const double there = row_alone(other), here = row_alone(subject);
  return verdict(difference(here, there) < kRounding,
      fmt::format("a row alone, padded to another length: {:.2g} relative", difference(here, there)));
}
}  // namespace

std::vector<CheckLine> run_checks(CheckSubject& subject, const std::function<void(const CheckLine&)>& on_line) {
  std::vector<CheckLine> lines;
  const auto add = [&](const char* name, Finding finding) {
    lines.push_back({name, finding.verdict, std::move(finding.figure)});
    if (on_line) on_line(lines.back());
  };
  add("initial loss", check_initial_loss(subject));
  add("gradients by layer", check_gradient_norms(subject));
  add("gradients against differences", check_finite_differences(subject));
  add("dead units", check_dead_units(subject));
  add("attention rows sum to one", check_attention(subject));
  add("no look at later tokens", check_causality(subject));
  add("earlier tokens count", check_context(subject));
  add("padding", check_padding(subject));
  add("rows do not see each other", check_rows(subject));
  add("padded length", check_lengths(subject));
  add("determinism", check_determinism(subject));
  add("bf16 against fp32", check_drift(subject));
  std::optional<Finding> throughput, memory;
  add("overfitting one batch", check_overfitting(subject, throughput, memory));
  if (throughput) add("throughput", *throughput);
  if (memory) add("memory", *memory);
  return lines;
}
}  // namespace linnet
