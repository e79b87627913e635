#include "models/modules/blocks.h"

namespace linnet {
namespace {

AttentionConfig attention_config(const LayerConfig& config) {
  const double dropout = config.attention_dropout.value_or(config.dropout);
  return {.width = config.width,
          .heads = config.heads,
          .dropout = static_cast<float>(dropout),
          .projection = config.weights,
          .output = config.residual,
          .query_scale = config.query_scale,
          .kv_heads = config.kv_heads,
          .head_size = config.head_size,
          .scale = config.attention_scale,
          .biases = config.biases.attention,
          .output_bias = config.biases.output,
          .window = config.window,
          .head_norms = config.head_norms,
          .epsilon = config.epsilon,
          .rotary = config.rotary};
}

Initializer or_glorot(const Initializer& initializer) { return initializer ? initializer : xavier_uniform(); }

// One residual sub-layer:  pre-LN  x + dropout(f(norm(x)))    post-LN  norm(x + dropout(f(x)))
template <class SubLayer>
Tensor residual(Tensor x, bool norm_first, LayerNorm& norm, Dropout& dropout, SubLayer f) {
  if (norm_first) return x + dropout(f(norm(x)));
  return norm(x + dropout(f(x)));
}

}  // namespace

Tensor activate(Tensor x, Activation activation) {
  switch (activation) {
    case Activation::kRelu:
      return relu(x);
    case Activation::kGelu:
      return gelu(x);
    case Activation::kGeluTanh:
      return gelu_tanh(x);
    case Activation::kSilu:
      return silu(x);
  }
  return x;
}

// The two projections are named directly under the layer, as PyTorch does: this module adds no name of its own.
FeedForward::FeedForward(Module* parent, const LayerConfig& config)
    : Module(parent, ""),
      activation(config.activation),
      linear1{this, "linear1", config.width, config.hidden, or_glorot(config.weights), config.biases.feed_forward},
      linear2{this, "linear2", config.hidden, config.width, or_glorot(config.residual), config.biases.feed_forward},
      dropout{this, "dropout", static_cast<float>(config.hidden_dropout)} {
  if (config.gated)
    linear3.emplace(this, "linear3", config.width, config.hidden, or_glorot(config.weights),
                    config.biases.feed_forward);
}

Tensor FeedForward::operator()(Tensor x) {
  Tensor hidden = activate(linear1(x), activation);
  if (linear3) hidden = hidden * (*linear3)(x);
  return linear2(dropout(hidden));
}

EncoderLayer::EncoderLayer(Module* parent, std::string name, const LayerConfig& config)
    : Module(parent, std::move(name)),
      norm_first(config.norm_first),
      self_attn{this, "self_attn", attention_config(config)},
      feed_forward{this, config},
      norm1{this, "norm1", config.width, config.epsilon, config.norms},
      norm2{this, "norm2", config.width, config.epsilon, config.norms},
      dropout1{this, "dropout1", static_cast<float>(config.dropout)},
      dropout2{this, "dropout2", static_cast<float>(config.dropout)} {}

Tensor EncoderLayer::operator()(Tensor x, const AttentionContext& context) {
  ModuleScope scope(*this);
  x = residual(x, norm_first, norm1, dropout1, [&](Tensor y) { return self_attn(y, context); });
  return residual(x, norm_first, norm2, dropout2, [&](Tensor y) { return feed_forward(y); });
}

DecoderLayer::DecoderLayer(Module* parent, std::string name, const LayerConfig& config)
    : Module(parent, std::move(name)),
      norm_first(config.norm_first),
      self_attn{this, "self_attn", attention_config(config)},
      cross_attn{this, "cross_attn", attention_config(config)},
      feed_forward{this, config},
      norm1{this, "norm1", config.width, config.epsilon, config.norms},
      norm2{this, "norm2", config.width, config.epsilon, config.norms},
      norm3{this, "norm3", config.width, config.epsilon, config.norms},
      dropout1{this, "dropout1", static_cast<float>(config.dropout)},
      dropout2{this, "dropout2", static_cast<float>(config.dropout)},
      dropout3{this, "dropout3", static_cast<float>(config.dropout)} {}

Tensor DecoderLayer::operator()(Tensor x, const AttentionContext& context, Tensor memory) {
  ModuleScope scope(*this);
  x = residual(x, norm_first, norm1, dropout1, [&](Tensor y) { return self_attn(y, context); });
  x = residual(x, norm_first, norm2, dropout2, [&](Tensor y) { return cross_attn(y, context, memory); });
  return residual(x, norm_first, norm3, dropout3, [&](Tensor y) { return feed_forward(y); });
}

}  // namespace linnet
