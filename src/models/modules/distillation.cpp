#include "models/modules/distillation.h"
#include <vector>
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/expression_builder.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/softmax/softmax.h"

namespace linnet {

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
  std::vector<Tensor> values(static_cast<size_t>(other.value_count()));
  for (const GraphInput& input : other.inputs())
    values[static_cast<size_t>(input.value)] = graph.input(name_of(input.name), other.value(input.value).type);
  for (const Node& node : other.nodes()) {
    std::vector<Tensor> in;
    for (const ValueId value : node.in) in.push_back(values[static_cast<size_t>(value)]);
    const std::string& inner = other.scope_path(node.scope);
    const ScopeId outer = graph.enter_scope(inner.empty() ? path : path + "." + inner);
    const std::vector<Tensor> out = graph.add(*node.op, in, node.attrs, node.where);
    graph.leave_scope(outer);
    for (size_t i = 0; i < out.size(); ++i) values[static_cast<size_t>(node.out[i])] = out[i];
  }
  return values[static_cast<size_t>(result)];
}

}  // namespace linnet
