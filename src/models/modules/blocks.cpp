#include "models/modules/blocks.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/reduce/reduce.h"
#include "models/nn/trace.h"

namespace linnet {
namespace {
LayerNorm norm_of(Module* parent, const char* name, const LayerConfig& config) {
  return {parent, name, config.width, config.epsilon, config.norms};
}

Dropout dropout_of(Module* parent, const char* name, const LayerConfig& config) {
  return {parent, name, static_cast<float>(config.dropout)};
}

// Pre-LN: x + dropout(f(norm(x))); post-LN: norm(x + dropout(f(x))).
template <class SubLayer> Tensor residual(Tensor x, NormPlace place, LayerNorm& norm, Dropout& dropout, SubLayer f) {
  return place == NormPlace::kInput ? x + dropout(f(norm(x))) : norm(x + dropout(f(x)));
}

Tensor identity_matrix(Graph& graph, DType dtype, int64_t size) {
  std::vector<double> values(size * size);
  for (size_t i = 0; i < values.size(); i += static_cast<size_t>(size + 1)) values[i] = 1;
  return literal(graph, {dtype, {size, size}}, values);
}

// x router^T, always in fp32: every row selects the only weight.
Tensor route(Tensor x, Tensor router) {
  const Tensor first = fill(*x.graph, {DType::kI32, {x.dim(0)}}, 0);
  return grouped_matmul(x, router, first, {.groups = 1, .exact = true});
}
}  // namespace

// Adds no name: PyTorch names the two projections directly under the layer.
FeedForward::FeedForward(Module* parent, const LayerConfig& config)
    : Module(parent, ""), activation(config.activation), fused_gate(config.fused_gate),
      gate_second(config.gate_second), linear1{this, "linear1", config.width,
                                           (config.fused_gate ? 2 : 1) * config.hidden, or_glorot(config.weights),
                                           config.biases.feed_forward},
      linear2{this, "linear2", config.hidden, config.width, or_glorot(config.residual), config.biases.has_last()},
      dropout{this, "dropout", static_cast<float>(config.hidden_dropout)} {
  if (config.gated && !fused_gate)
    linear3.emplace(
        this, "linear3", config.width, config.hidden, or_glorot(config.weights), config.biases.feed_forward);
}

Tensor FeedForward::operator()(Tensor x) {
  Tensor hidden = linear1(x);
  if (fused_gate) {
    const std::vector<Tensor> halves = split_evenly(hidden, -1, 2);
    return linear2(dropout(activate(halves[gate_second], activation) * halves[!gate_second]));
  }
  hidden = activate(hidden, activation);
  if (linear3) hidden = hidden * (*linear3)(x);
  return linear2(dropout(hidden));
}

EncoderLayer::EncoderLayer(Module* parent, std::string name, const LayerConfig& config)
    : Module(parent, std::move(name)), norm_place(config.norm_place), parallel(config.parallel),
      residual_scale(config.residual_scale), self_attn{this, "self_attn", config},
      dropout1(dropout_of(this, "dropout1", config)), dropout2(dropout_of(this, "dropout2", config)) {
  if (config.experts > 0) experts.emplace(this, "experts", config);
  else feed_forward.emplace(this, config);
  const auto add_norm = [&](std::optional<LayerNorm>& norm, const char* called) {
    norm.emplace(this, called, config.width, config.epsilon, config.norms);
  };
  if (config.attention_norm) add_norm(norm1, "norm1");
  add_norm(norm2, "norm2");
  if (norm_place != NormPlace::kInputAndResult) return;
  add_norm(result_norm1, "result_norm1");
  add_norm(result_norm2, "result_norm2");
}

Tensor EncoderLayer::add(Tensor x, Tensor result) const {
  return residual_scale == 1 ? x + result : x + result * residual_scale;
}

Tensor EncoderLayer::operator()(Tensor x, const AttentionContext& context) {
  ModuleScope scope(*this);
  const bool of_input = norm_place == NormPlace::kInput || norm_place == NormPlace::kInputAndResult;
  const auto sub_layer = [&](Tensor y, std::optional<LayerNorm>& norm, std::optional<LayerNorm>& result_norm,
                             Dropout& dropout, const auto& f) {
    y = f(of_input && norm ? (*norm)(y) : y);
    if (norm_place == NormPlace::kResult) y = (*norm)(y);
    if (result_norm) y = (*result_norm)(y);
    return dropout(y);
  };
  const auto attend = [&](Tensor y) { return self_attn(y, context); };
  const auto feed = [&](Tensor y) { return experts ? (*experts)(y) : (*feed_forward)(y); };
  const Tensor attended = sub_layer(x, norm1, result_norm1, dropout1, attend);
  if (parallel) return add(add(x, attended), sub_layer(x, norm2, result_norm2, dropout2, feed));
  x = add(x, attended);
  if (norm_place == NormPlace::kSum) x = (*norm1)(x);
  x = add(x, sub_layer(x, norm2, result_norm2, dropout2, feed));
  return norm_place == NormPlace::kSum ? (*norm2)(x) : x;
}

DecoderLayer::DecoderLayer(Module* parent, std::string name, const LayerConfig& config)
    : Module(parent, std::move(name)), norm_place(config.norm_place), self_attn{this, "self_attn", config},
      cross_attn{this, "cross_attn", config}, feed_forward{this, config}, norm1(norm_of(this, "norm1", config)),
      norm2(norm_of(this, "norm2", config)), norm3(norm_of(this, "norm3", config)),
      dropout1(dropout_of(this, "dropout1", config)), dropout2(dropout_of(this, "dropout2", config)),
      dropout3(dropout_of(this, "dropout3", config)) {}

Tensor DecoderLayer::operator()(Tensor x, const AttentionContext& context, Tensor memory) {
  ModuleScope scope(*this);
  x = residual(x, norm_place, norm1, dropout1, [&](Tensor y) { return self_attn(y, context); });
  x = residual(x, norm_place, norm2, dropout2, [&](Tensor y) { return cross_attn(y, context, memory); });
  return residual(x, norm_place, norm3, dropout3, [&](Tensor y) { return feed_forward(y); });
}

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

Experts::Experts(Module* parent, std::string name, const LayerConfig& config)
    : Module(parent, std::move(name)), chosen(config.chosen_experts), normalized(config.normalized_choice),
      activation(config.activation), router{this, "router.weight", {config.experts, config.width},
                                         or_glorot(config.weights)},
      linear1{this, "linear1.weight", {config.experts * 2 * config.hidden, config.width}, or_glorot(config.weights)},
      linear2{this, "linear2.weight", {config.experts * config.width, config.hidden}, or_glorot(config.weights)} {}

Tensor Experts::operator()(Tensor x) {
  ModuleScope scope(*this);
  const int64_t tokens = x.dim(0) * x.dim(1), width = x.dim(2), count = router.spec().shape[0];
  const Tensor flat = reshape(x, {tokens, width});
  const Tensor probabilities = softmax(route(flat, router));
  const Tensor identity = identity_matrix(*x.graph, probabilities.type().dtype, count);
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
    load = {sum_to(counts, {1, count}) * mean, sum_to(probabilities, {1, count}) * mean};
  }
  const Tensor choice = joined(choices, 0);
  const std::vector<Tensor> halves = split_evenly(grouped_matmul(flat, linear1, choice, {.groups = count}), -1, 2);
  const Tensor hidden = activate(halves[0], activation) * halves[1];
  const Tensor results = grouped_matmul(hidden, linear2, choice, {.groups = count});
  Tensor weight = joined(weights, 0);
  if (normalized) weight = weight / total;
  return reshape(sum_to(reshape(results, {chosen, tokens, width}) * weight, {1, tokens, width}), x.shape());
}
}  // namespace linnet
