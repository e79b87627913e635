#include "models/llama.h"

#include "base/error.h"
#include "ops/movement/movement.h"

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

void check_length(int64_t length, const LlamaConfig& config) {
  if (length > config.max_seq_len)
    fail_user("a sequence of " + std::to_string(length) + " tokens is longer than the model's " +
              std::to_string(config.max_seq_len));
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
  check_length(rows.tokens.dim(1), config);
  Tensor x = tokens(rows.tokens);
  const Sight sight{.lengths = rows.lengths,
                    .causal = true,
                    .starts = rows.starts,
                    .positions = rows.positions,
                    .extend = rows.extend};
  for (size_t i = 0; i < layers.size(); ++i) x = layers[i](x, sight);
  return norm(x);
}

Tensor Llama::prefill(Tensor ids, const CacheSlots& cache) {
  check_length(ids.dim(1), config);
  Tensor x = tokens(ids);
  for (size_t i = 0; i < layers.size(); ++i) x = layers[i].prefill(x, cache);
  return norm(x);
}

Tensor Llama::step(Tensor ids, const DecodeStep& step) {
  check_length(step.max_length, config);
  Tensor x = reshape(tokens(ids), {ids.dim(0), 1, config.width});
  for (size_t i = 0; i < layers.size(); ++i) x = layers[i].step(x, step);
  return reshape(norm(x), {ids.dim(0), config.width});
}

Loss llama_loss(Llama& model, Trace& trace, int64_t batch, int64_t length) {
  return causal_loss(model, trace, batch, length);
}

}  // namespace linnet
