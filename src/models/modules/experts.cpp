#include "models/modules/experts.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/grouped_matmul/grouped_matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/order/order.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/softmax/softmax.h"
#include "models/nn/trace.h"

namespace linnet {
namespace {

Tensor identity_matrix(Graph& graph, DType dtype, int64_t size) {
  std::vector<double> values(static_cast<size_t>(size * size));
  for (size_t i = 0; i < values.size(); i += static_cast<size_t>(size + 1)) values[i] = 1;
  return literal(graph, {dtype, {size, size}}, values);
}

// x router^T, always in fp32: all rows choose the only weight.
Tensor route(Tensor x, Tensor router) {
  const Tensor first = fill(*x.graph, {DType::kI32, {x.dim(0)}}, 0);
  return grouped_matmul(x, router, first, {.groups = 1, .exact = true});
}

Tensor joined(const std::vector<Tensor>& parts) {
  return parts.size() == 1 ? parts[0] : concat(parts[0], std::span(parts).subspan(1), 0);
}

}  // namespace

Tensor activate(Tensor x, Activation activation) {
  switch (activation) {
    case Activation::kRelu: return relu(x);
    case Activation::kGelu: return gelu(x);
    case Activation::kGeluTanh: return gelu_tanh(x);
    case Activation::kSilu: return silu(x);
    case Activation::kTanh: return tanh(x);
  }
  return x;
}

Experts::Experts(Module* parent, std::string name, const ExpertsConfig& config)
    : Module(parent, std::move(name)),
      config(config),
      router{this, "router.weight", {config.count, config.width}, config.weights},
      linear1{this, "linear1.weight", {config.count * 2 * config.hidden, config.width}, config.weights},
      linear2{this, "linear2.weight", {config.count * config.width, config.hidden}, config.weights} {}

Tensor Experts::operator()(Tensor x) {
  ModuleScope scope(*this);
  const int64_t tokens = x.dim(0) * x.dim(1), width = config.width, chosen = config.chosen;
  const Tensor flat = reshape(x, {tokens, width});
  const Tensor probabilities = softmax(route(flat, router));
  const Tensor identity = identity_matrix(*x.graph, probabilities.type().dtype, config.count);
  std::vector<Tensor> choices, weights;  // the likeliest first
  Tensor left = probabilities, total, counts;
  for (int64_t i = 0; i < chosen; ++i) {
    const Tensor choice = argmax_last(left), mask = embedding(identity, choice);
    const Tensor weight = sum_to(probabilities * mask, {tokens, 1});
    choices.push_back(choice), weights.push_back(reshape(weight, {1, tokens, 1}));
    if (i + 1 < chosen) left = left - mask * 2.0;
    total = total.defined() ? total + weights.back() : weights.back();
    counts = counts.defined() ? counts + mask : mask;
  }
  if (Trace::current().options().training) {
    const double mean = 1 / static_cast<double>(tokens);
    load = {sum_to(counts, {1, config.count}) * mean, sum_to(probabilities, {1, config.count}) * mean};
  }
  const Tensor choice = joined(choices);
  const std::vector<Tensor> halves =
      split_evenly(grouped_matmul(flat, linear1, choice, {.groups = config.count}), -1, 2);
  const Tensor hidden = activate(halves[0], config.activation) * halves[1];
  const Tensor results = grouped_matmul(hidden, linear2, choice, {.groups = config.count});
  Tensor weight = joined(weights);
  if (config.normalized) weight = weight / total;
  return reshape(sum_to(reshape(results, {chosen, tokens, width}) * weight, {1, tokens, width}), x.shape());
}

}  // namespace linnet
