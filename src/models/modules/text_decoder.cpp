#include "models/modules/text_decoder.h"
#include "base/fail.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
namespace {
LayerConfig layer_config(const DecoderConfig& config, const LayerKind& kind) {
  LayerConfig layer = common_layer_config(config);
  if (layer.hidden <= 0) layer.hidden = 4 * config.width;
  layer.hidden_dropout = 0;
  layer.parallel = config.parallel, layer.residual_scale = config.residual_scale;
  layer.experts = config.experts, layer.chosen_experts = config.chosen_experts;
  layer.normalized_choice = config.normalized_choice;
  layer.window = kind.window, layer.rotary = kind.rotary;
  layer.soft_cap = config.soft_cap;
  // Two sub-layers per layer add to the residual stream; the scale keeps its final variance.
  const double additions = config.scaled_residual ? 2 * static_cast<double>(config.layers) : 1;
  layer.weights = normal_init(config.deviation), layer.residual = normal_init(config.deviation / std::sqrt(additions));
  return layer;
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
    : config(config), tokens{this, "tokens", config.vocab_size,
                          config.embedding_width > 0 ? config.embedding_width : config.width,
                          normal_init(config.deviation)},
      positions(config.learned_positions
                    ? std::make_unique<Embedding>(this, "positions", config.first_position + config.max_seq_len,
                          config.width, normal_init(config.deviation))
                    : nullptr),
      dropout{this, "dropout", static_cast<float>(config.embedding_dropout.value_or(config.dropout))}, layers{this,
                                                                                                           "layers"} {
  tokens.padding = config.pad_token;
  for (size_t i = 0; i < static_cast<size_t>(config.layers); ++i)
    layers.append(layer_config(
        config, config.layer_kinds.empty() ? LayerKind{config.window, config.rotary} : config.layer_kinds.at(i)));
  if (config.final_norm) norm.emplace(this, "norm", config.width, config.epsilon, config.norms);
  if (config.embedding_width > 0) {
    const Initializer weights = normal_init(config.deviation);
    project_in.emplace(this, "project_in", config.embedding_width, config.width, weights, false);
    project_out.emplace(this, "project_out", config.width, config.embedding_width, weights, false);
  }
  if (!config.tied_head) head.emplace(this, "head", tokens.weight.spec().shape, normal_init(config.deviation));
}

int64_t TextDecoder::usual_length() const {
  if (!config.rotary || config.rotary->long_divisors.empty()) return config.max_seq_len;
  return std::min(config.max_seq_len, static_cast<int64_t>(config.rotary->scaling.original_length));
}

int64_t TextDecoder::window() const {
  return std::max(config.window, max_of<int64_t>(config.layer_kinds, &LayerKind::window));
}

Tensor TextDecoder::embed(const TokenRows& rows) {
  const int64_t length = rows.tokens.dim(1);
  if (length > config.max_seq_len)
    fail_user("a sequence of ", length, " tokens is longer than the model's ", config.max_seq_len);
  Tensor x = tokens(rows.tokens);
  if (config.embedding_scale != 1) x = x * config.embedding_scale;
  if (project_in) x = (*project_in)(x);
  if (!positions) return x;
  const Tensor table = positions->weight.tensor();
  if (!rows.positions.defined()) return x + slice(table, 0, config.first_position, length);
  if (config.first_position == 0) return x + (*positions)(rows.positions);
  return x + embedding(slice(table, 0, config.first_position, config.max_seq_len), rows.positions);
}

Tensor TextDecoder::hidden(const TokenRows& rows) {
  Tensor x = dropout(embed(rows));
  AttentionContext context = rows.context();
  for (size_t i = 0; i < layers.size(); ++i) {
    // In decoding, `starts` is where the window begins; layers without one see all.
    context.starts = rows.causal || layers[i].self_attn.config.window > 0 ? rows.starts : Tensor{};
    x = layers[i](x, context);
  }
  if (norm) x = (*norm)(x);
  if (project_out) x = (*project_out)(x);
  return config.logit_scale == 1 ? x : x * config.logit_scale;
}

// The number of experts times the sum over them of the share of tokens that chose one times its mean probability.
Tensor TextDecoder::training_loss() {
  if (config.experts == 0 || config.load_loss == 0) return {};
  Tensor chosen, probability;
  for (EncoderLayer& layer : layers) {
    const Experts::Load& load = layer.experts->load;
    chosen = chosen.defined() ? chosen + load.chosen : load.chosen;
    probability = probability.defined() ? probability + load.probability : load.probability;
  }
  const double count = static_cast<double>(config.layers);
  return sum_to(chosen * probability, {}) * (config.load_loss * static_cast<double>(config.experts) / (count * count));
}

bool TextDecoder::is_looked_up(const ParameterSpec& parameter) const {
  return (positions && parameter.name == positions->weight.spec().name) ||
         (head && parameter.name == tokens.weight.spec().name);
}
}  // namespace linnet
