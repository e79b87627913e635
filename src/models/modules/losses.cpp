#include "models/modules/losses.h"
#include <algorithm>
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
void ClassWeights::set(Module& model, std::span<const float> weights) {
  table_.reset();
  if (weights.empty()) return;
  table_.emplace(&model, "class_weights", Shape{std::ssize(weights)},
      [values = std::vector<float>(weights.begin(), weights.end())](std::span<float> out, const Shape&,
          const std::function<double()>&) { std::ranges::copy(values, out.begin()); });
}

Tensor soft_cross_entropy_sum(Tensor logits, Tensor target) {
  const Shape row{logits.dim(0), 1};
  return sum_to(sum_to(target, row) * log_sum_exp_last(logits) - sum_to(target * logits, row), {});
}

Tensor weighted_cross_entropy_sum(Tensor logits, Tensor labels, double label_smoothing, Tensor weights) {
  if (!weights.defined()) return cross_entropy_sum(logits, labels, label_smoothing);
  const int64_t rows = labels.shape().elements(), classes = weights.dim(0);
  const Tensor flat = reshape(logits, {rows, classes});
  Tensor target = one_hot(reshape(labels, {rows}), classes, logits.type().dtype);
  if (label_smoothing > 0)
    target =
        target * (1 - label_smoothing) + sum_to(target, {rows, 1}) * (label_smoothing / static_cast<double>(classes));
  return soft_cross_entropy_sum(flat, target * weights);
}

namespace {
// The mean over the outputs of `errors` [batch, outputs], summed over the rows that count.
Loss mean_of_outputs(Trace& trace, Tensor errors) {
  const int64_t batch = errors.dim(0), outputs = errors.dim(1);
  const Tensor weights = trace.input("weights", {errors.type().dtype, {batch}});
  const Tensor of_rows = reshape(sum_to(errors, {batch, 1}), {batch}) * (1.0 / static_cast<double>(outputs));
  return {sum_to(of_rows * weights, {}), sum_to(weights, {})};
}
}  // namespace

Loss label_loss(Trace& trace, Tensor logits, Tensor class_weights) {
  const Tensor labels = trace.input("labels", logits.type());
  if (!class_weights.defined()) return mean_of_outputs(trace, softplus(logits) - logits * labels);
  const Tensor there = labels * class_weights;
  return mean_of_outputs(trace, softplus(logits) * (there - labels + 1.0) - logits * there);
}

Loss number_loss(Trace& trace, Tensor logits) {
  return mean_of_outputs(trace, square(logits - trace.input("labels", logits.type())));
}

Loss distilled_loss(const Loss& data, Tensor student, Tensor teacher, Tensor targets, const Distillation& options) {
  const int64_t rows = targets.shape().elements();
  const auto softened = [&](Tensor logits) {
    return reshape(logits, {rows, logits.shape().elements() / rows}) * (1 / options.temperature);
  };
  const Tensor given = softened(student), wanted = softened(teacher);
  const Tensor counts = apply_scalar(Scalar::kGreater, cast(reshape(targets, {rows, 1}), given.type().dtype), -0.5);
  // The sum over classes of p (log p - log q).
  const Tensor divergence =
      log_sum_exp_last(given) - log_sum_exp_last(wanted) + sum_to(softmax(wanted) * (wanted - given), {rows, 1});
  const double scale = options.share * options.temperature * options.temperature;
  return {data.sum * (1 - options.share) + sum_to(divergence * counts, {}) * scale, data.count};
}

Tensor append_graph(Graph& graph, const Graph& other, ValueId result, const std::string& path,
    const std::function<std::string(const std::string&)>& name_of) {
  std::vector<Tensor> values(other.value_count());
  for (const GraphInput& input : other.inputs())
    values[input.value] = graph.input(name_of(input.name), other.value(input.value).type);
  for (const Node& node : other.nodes()) {
    const std::vector<Tensor> in = mapped(node.in, [&](ValueId value) { return values[value]; });
    const std::string& inner = other.scope_path(node.scope);
    const ScopeId outer = graph.enter_scope(inner.empty() ? path : path + "." + inner);
    const std::vector<Tensor> out = graph.add(*node.op, in, node.attrs, node.where);
    graph.set_scope(outer);
    for (size_t i = 0; i < out.size(); ++i) values[node.out[i]] = out[i];
  }
  return values[result];
}
}  // namespace linnet
