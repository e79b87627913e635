#include "models/modules/gpt.h"

#include <cmath>

#include "base/error.h"
#include "engine/ops/movement/movement.h"

namespace linnet {
namespace {

constexpr double kGptDeviation = 0.02;  // of initial weights

LayerConfig layer_config(const GptConfig& config) {
  // Two sub-layers each add to the residual stream: their scale keeps its variance at the end.
  const double additions = 2 * static_cast<double>(config.layers);
  return {.width = config.width,
          .heads = config.heads,
          .hidden = config.hidden > 0 ? config.hidden : 4 * config.width,
          .dropout = config.dropout,
          .hidden_dropout = 0,
          .norm_first = true,
          .activation = config.activation,
          .epsilon = config.epsilon,
          .weights = normal_init(kGptDeviation),
          .residual = normal_init(kGptDeviation / std::sqrt(additions)),
          .attention_dropout = config.attention_dropout,
          .norms = config.affine_norms ? NormKind::kLayer : NormKind::kBare};
}

}  // namespace

Gpt::Gpt(const GptConfig& config)
    : config(config),
      tokens{this, "tokens", config.vocab_size, config.width, normal_init(kGptDeviation)},
      positions{this, "positions", config.max_seq_len, config.width, normal_init(kGptDeviation)},
      dropout{this, "dropout", static_cast<float>(config.embedding_dropout.value_or(config.dropout))},
      layers{this, "layers", config.layers, layer_config(config)},
      norm{this, "norm", config.width, config.epsilon, config.affine_norms ? NormKind::kLayer : NormKind::kBare} {
  if (!config.tied_head) head.emplace(this, "head", Shape{config.vocab_size, config.width}, normal_init(kGptDeviation));
}

Tensor Gpt::embed(Tensor ids) {
  const int64_t length = ids.dim(1);
  if (length > config.max_seq_len)
    fail_user("a sequence of " + std::to_string(length) + " tokens is longer than the model's " +
              std::to_string(config.max_seq_len));
  return tokens(ids) + slice(positions.weight.tensor(), 0, 0, length);
}

Tensor Gpt::hidden(const TokenRows& rows) {
  Tensor x = dropout(rows.positions.defined() ? tokens(rows.tokens) + positions(rows.positions) : embed(rows.tokens));
  const AttentionContext context = rows.context();
  for (size_t i = 0; i < layers.size(); ++i) x = layers[i](x, context);
  return norm(x);
}

Loss gpt_loss(Gpt& model, Trace& trace, int64_t batch, int64_t length) {
  return causal_loss(model, trace, batch, length);
}

}  // namespace linnet
