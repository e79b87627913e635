#include "models/modules/llama.h"

#include "base/error.h"
#include "engine/ops/movement/movement.h"

namespace linnet {
namespace {

LayerConfig layer_config(const LlamaConfig& config) {
  return {.width = config.width,
          .heads = config.heads,
          .hidden = config.hidden,
          .dropout = 0,
          .hidden_dropout = 0,
          .norm_first = true,
          .activation = config.activation,
          .epsilon = config.epsilon,
          .weights = normal_init(config.deviation),
          .residual = normal_init(config.deviation),
          .attention_dropout = config.attention_dropout,
          .norms = NormKind::kRms,
          .biases = config.biases,
          .gated = true,
          .kv_heads = config.kv_heads,
          .head_size = config.head_size,
          .window = config.window,
          .rotary = config.rotary};
}

}  // namespace

Llama::Llama(const LlamaConfig& config)
    : config(config),
      tokens{this, "tokens", config.vocab_size, config.width, normal_init(config.deviation)},
      layers{this, "layers", config.layers, layer_config(config)},
      norm{this, "norm", config.width, config.epsilon, NormKind::kRms} {
  if (!config.tied_head)
    head.emplace(this, "head", Shape{config.vocab_size, config.width}, normal_init(config.deviation));
}

Tensor Llama::hidden(const TokenRows& rows) {
  if (const int64_t length = rows.tokens.dim(1); length > config.max_seq_len)
    fail_user("a sequence of " + std::to_string(length) + " tokens is longer than the model's " +
              std::to_string(config.max_seq_len));
  Tensor x = tokens(rows.tokens);
  const AttentionContext context = rows.context();
  for (size_t i = 0; i < layers.size(); ++i) x = layers[i](x, context);
  return norm(x);
}

Loss llama_loss(Llama& model, Trace& trace, int64_t batch, int64_t length) {
  return causal_loss(model, trace, batch, length);
}

}  // namespace linnet
