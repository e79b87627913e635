#include <fmt/format.h>
#include "engine/ir/op.h"
#include "engine/ops/attention/attention.h"
#include "engine/plan/store.h"
#include "training/check/check.h"

namespace linnet {
namespace {
struct ParameterGradient {
  const ParameterSlot* slot;
  std::vector<float> values;
  double norm = 0;  // of the mean loss
  double rms() const { return norm / std::sqrt(static_cast<double>(values.size())); }
};

// Gradients of the mean loss at the initial weights. A step with learning rate 0 leaves them in memory.
std::vector<ParameterGradient> gradients_of(CheckSubject& subject) {
  restart(subject);
  const StepReport report = subject.trainer.step(subject.shape, 0, 1);
  std::vector<ParameterGradient> all;
  subject.trainer.visit_gradient(subject.shape, [&](const ParameterSlot& slot, std::span<const float> values) {
    ParameterGradient& gradient = all.emplace_back(ParameterGradient{&slot, {values.begin(), values.end()}});
    double squares = 0;
    for (float& value : gradient.values) {
      value = static_cast<float>(value / static_cast<double>(std::max<int64_t>(report.tokens, 1)));
      squares += static_cast<double>(value) * value;
    }
    gradient.norm = std::sqrt(squares);
  });
  restart(subject);  // the moments
  return all;
}

double evaluated_loss(CheckSubject& subject) { return subject.trainer.evaluate(subject.shape).mean(); }

// The training loss. Rate 0 keeps the weights, and step 1 always draws the same dropout.
double trained_loss(CheckSubject& subject) { return subject.trainer.step(subject.shape, 0, 1).loss; }

using MeanLoss = double (*)(CheckSubject& subject);

// The norm of the parameter's values, or, of small ones such as initial biases, the norm they will grow to.
double size_of(CheckSubject& subject, const ParameterGradient& gradient) {
  constexpr double kUsual = 0.02;
  const float* values = subject.trainer.state().flat(state::kParameters) + gradient.slot->offset;
  const auto square = [&](size_t i) { return static_cast<double>(values[i]) * values[i]; };
  return std::sqrt(sum_of<double>(gradient.values.size(), square)) +
         kUsual * std::sqrt(static_cast<double>(gradient.values.size()));
}

// The loss's derivative along one parameter's gradient, by central differences.
double slope(CheckSubject& subject, const ParameterGradient& gradient, double step, MeanLoss mean_loss) {
  float* values = subject.trainer.state().flat(state::kParameters) + gradient.slot->offset;
  const std::vector<float> kept(values, values + gradient.values.size());
  const auto at = [&](double distance) {
    for (size_t i = 0; i < kept.size(); ++i)
      values[i] = static_cast<float>(kept[i] + distance / gradient.norm * gradient.values[i]);
    subject.trainer.state().push();
    subject.before_step();
    return mean_loss(subject);
  };
  const double above = at(step), below = at(-step);
  std::ranges::copy(kept, values);
  subject.trainer.state().push();
  return (above - below) / (2 * step);
}

// The largest difference of attention over values of 1 from 1, or from 0 where a query sees no key.
double attention_of_ones(const Node& node, std::vector<HostTensor> operands) {
  std::ranges::fill(operands[2].as<float>(), 1.0F);
  Graph graph;
  NamedTensors inputs;
  std::vector<Tensor> in;
  for (size_t i = 0; i < operands.size(); ++i) {
    in.push_back(graph.input("in" + std::to_string(i), operands[i].type()));
    inputs["in" + std::to_string(i)] = std::move(operands[i]);
  }
  graph.output("out", graph.add(*node.op, in, node.attrs, node.where)[0]);
  const HostTensor out = interpret(graph, inputs).outputs.at("out");
  double worst = 0;
  for (const float value : out.as<float>()) {
    const double off = value == 0 ? 0 : std::abs(value - 1.0);
    worst = std::isfinite(value) ? std::max(worst, off) : INFINITY;
  }
  return worst;
}
}  // namespace

Finding check_gradient_norms(CheckSubject& subject) {
  constexpr double kMostRatio = 1e6;
  const std::vector<ParameterGradient> gradients = gradients_of(subject);
  if (gradients.empty()) return skipped("the plan has written over the gradient");
  const ParameterGradient *least = nullptr, *most = nullptr;
  for (const ParameterGradient& gradient : gradients) {
    if (!std::isfinite(gradient.norm))
      return verdict(false, "the gradient of " + gradient.slot->spec.name + " is not finite");
    if (gradient.norm == 0 && matches(gradient.slot->spec.name, "*.lora_A.*")) continue;  // lora_B begins at 0
    if (gradient.norm == 0)
      return verdict(false, "the gradient of " + gradient.slot->spec.name + " is zero: nothing reaches it");
    if (gradient.slot->spec.shape.rank() < 2) continue;
    if (!least || gradient.rms() < least->rms()) least = &gradient;
    if (!most || gradient.rms() > most->rms()) most = &gradient;
  }
  if (!least) return skipped("the model has no matrices");
  return verdict(most->rms() / least->rms() < kMostRatio,
      fmt::format("{} parameters; root mean squares from {:.1e} ({}) to {:.1e} ({})", gradients.size(), least->rms(),
          least->slot->spec.name, most->rms(), most->slot->spec.name));
}

Finding check_finite_differences(CheckSubject& subject) {
  constexpr size_t kMost = 12;
  constexpr double kTolerance = 0.05, kLeastChange = 2.5e-4;  // relative to the slope and to the loss
  std::vector<ParameterGradient> gradients = gradients_of(subject);
  if (gradients.empty()) return skipped("the plan has written over the gradient");
  // Dropout and batch statistics change the training loss; otherwise use evaluation, which takes a third of the time.
  const bool are_equal = difference(trained_loss(subject), evaluated_loss(subject)) < 1e-5;
  const MeanLoss mean_loss = are_equal ? evaluated_loss : trained_loss;
  const double loss = mean_loss(subject);
  // Keeps gradients whose effect on the loss exceeds rounding at a step that stays in the linear range.
  std::erase_if(gradients, [&](const ParameterGradient& g) {
    return !std::isfinite(g.norm) || !(kLeastChange * loss / g.norm < 0.03 * size_of(subject, g));
  });
  if (gradients.empty()) return skipped("no gradient is large enough to be measured");
  const size_t stride = (gradients.size() + kMost - 1) / kMost;
  double worst = -1, worst_slope = 0;
  const ParameterGradient* at = nullptr;
  size_t checked = 0;
  for (size_t i = 0; i < gradients.size(); i += stride, ++checked) {
    const ParameterGradient& g = gradients[i];
    double best = INFINITY, best_slope = 0;
    // Long steps leave the linear range, short ones drown in rounding.
    for (const double change : {1e-3, kLeastChange, 4e-3, 2e-2}) {
      const double measured = slope(subject, g, change * loss / g.norm, mean_loss);
      if (difference(measured, g.norm) < best) best = difference(measured, g.norm), best_slope = measured;
      if (best < kTolerance / 2) break;
    }
    if (best > worst) worst = best, worst_slope = best_slope, at = &g;
  }
  return verdict(worst < kTolerance,
      fmt::format(
          "{} parameters; the worst is {}: gradient {:.4g}, differences {:.4g} ({:.2g} relative, {:.2g} allowed)",
          checked, at->slot->spec.name, at->norm, worst_slope, worst, kTolerance));
}

Finding check_attention(CheckSubject& subject) {
  const Graph& graph = evaluation_graph(subject);
  restart(subject);
  std::map<ValueId, HostTensor> kept;
  for (const Node& node : graph.nodes())
    if (is(node, kAttention))
      for (const ValueId value : node.in) kept[value];
  if (kept.empty()) return skipped("the model has no attention");
  const NamedTensors inputs = subject.trainer.graph_inputs(graph);
  for (const GraphInput& input : graph.inputs())
    if (kept.contains(input.value)) kept[input.value] = inputs.at(input.name);
  InterpreterOptions options{.kernels = KernelSet::kFast, .threads = subject.trainer.options().threads};
  options.after_node = [&](NodeId id, std::span<const TensorView> out) {
    for (size_t i = 0; i < out.size(); ++i)
      if (const auto found = kept.find(graph.node(id).out[i]); found != kept.end()) found->second = dense_copy(out[i]);
  };
  interpret(graph, inputs, options);
  double worst = 0;
  int64_t nodes = 0;
  std::string where;
  for (NodeId id = 0; id < graph.node_count(); ++id) {
    const Node& node = graph.node(id);
    if (!is(node, kAttention)) continue;
    std::vector<HostTensor> operands = mapped(node.in, [&](ValueId value) { return kept.at(value); });
    const double off = attention_of_ones(node, std::move(operands));
    if (++nodes == 1 || off > worst) worst = off, where = graph.where_text(id);
  }
  return verdict(worst < 1e-4, fmt::format("{} attentions; farthest off by {:.1e} ({})", nodes, worst, where));
}

Finding check_dead_units(CheckSubject& subject) {
  constexpr double kMostShare = 0.5;
  const Graph& graph = evaluation_graph(subject);
  restart(subject);
  double worst = -1;
  int64_t layers = 0;
  std::string where;
  InterpreterOptions options{.kernels = KernelSet::kFast, .threads = subject.trainer.options().threads};
  options.after_node = [&](NodeId id, std::span<const TensorView> out) {
    const Node& node = graph.node(id);
    if (label_of(node).find("relu") == std::string::npos && node.attrs.text().find("relu") == std::string::npos) return;
    const Shape& shape = out[0].type.shape;
    if (shape.rank() < 2 || out[0].type.dtype != DType::kF32 || out[0].strides != dense_strides(shape)) return;
    const int64_t units = shape[-1], rows = shape.elements() / std::max<int64_t>(units, 1);
    int64_t dead = 0;
    for (int64_t unit = 0; unit < units; ++unit) {
      bool fires = false;
      for (int64_t row = 0; row < rows && !fires; ++row) fires = out[0].as<float>()[row * units + unit] > 0;
      dead += !fires;
    }
    const double share = static_cast<double>(dead) / static_cast<double>(std::max<int64_t>(units, 1));
    ++layers;
    if (share > worst) worst = share, where = graph.where_text(id);
  };
  interpret(graph, subject.trainer.graph_inputs(graph), options);
  if (layers == 0) return skipped("no units that can be off for good (relu)");
  return verdict(worst < kMostShare,
      fmt::format("{} layers with relu; at most {:.1f}% never fire on this batch ({})", layers, 100 * worst, where));
}
}  // namespace linnet
