#include "models/modules/text_decoder.h"

#include <cmath>

#include "base/error.h"
#include "engine/ops/movement/movement.h"

namespace linnet {
namespace {

LayerConfig layer_config(const DecoderConfig& config) {
  // Two sub-layers each add to the residual stream: their scale keeps its variance at the end.
  const double additions = config.scaled_residual ? 2 * static_cast<double>(config.layers) : 1;
  return {.width = config.width,
          .heads = config.heads,
          .hidden = config.hidden > 0 ? config.hidden : 4 * config.width,
          .dropout = config.dropout,
          .hidden_dropout = 0,
          .norm_first = true,
          .activation = config.activation,
          .epsilon = config.epsilon,
          .weights = normal_init(config.deviation),
          .residual = normal_init(config.deviation / std::sqrt(additions)),
          .attention_dropout = config.attention_dropout,
          .norms = config.norms,
          .biases = config.biases,
          .gated = config.gated,
          .kv_heads = config.kv_heads,
          .head_size = config.head_size,
          .window = config.window,
          .head_norms = config.head_norms,
          .rotary = config.rotary};
}

}  // namespace

DecoderConfig llama_kind(DecoderConfig sizes) {
  sizes.activation = Activation::kSilu, sizes.gated = true;
  sizes.norms = NormKind::kRms, sizes.epsilon = 1e-6;
  sizes.learned_positions = false, sizes.rotary.emplace();
  sizes.biases = kNoBiases;
  sizes.tied_head = sizes.scaled_residual = false;
  return sizes;
}

TextDecoder::TextDecoder(const DecoderConfig& config)
    : config(config),
      tokens{this, "tokens", config.vocab_size, config.width, normal_init(config.deviation)},
      positions(config.learned_positions ? std::make_unique<Embedding>(this, "positions", config.max_seq_len,
                                                                       config.width, normal_init(config.deviation))
                                         : nullptr),
      dropout{this, "dropout", static_cast<float>(config.embedding_dropout.value_or(config.dropout))},
      layers{this, "layers", config.layers, layer_config(config)},
      norm{this, "norm", config.width, config.epsilon, config.norms} {
  if (!config.tied_head)
    head.emplace(this, "head", Shape{config.vocab_size, config.width}, normal_init(config.deviation));
}

Tensor TextDecoder::embed(const TokenRows& rows) {
  const int64_t length = rows.tokens.dim(1);
  if (length > config.max_seq_len)
    fail_user("a sequence of " + std::to_string(length) + " tokens is longer than the model's " +
              std::to_string(config.max_seq_len));
  if (!positions) return tokens(rows.tokens);
  return tokens(rows.tokens) +
         (rows.positions.defined() ? (*positions)(rows.positions) : slice(positions->weight.tensor(), 0, 0, length));
}

Tensor TextDecoder::hidden(const TokenRows& rows) {
  Tensor x = dropout(embed(rows));
  const AttentionContext context = rows.context();
  for (size_t i = 0; i < layers.size(); ++i) x = layers[i](x, context);
  return norm(x);
}

bool TextDecoder::is_looked_up(const ParameterSpec& parameter) const {
  return (positions && parameter.name == positions->weight.spec().name) ||
         (head && parameter.name == tokens.weight.spec().name);
}

}  // namespace linnet
