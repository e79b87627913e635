#include "models/modules/t5.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/movement/movement.h"

namespace linnet {
namespace {
// Normal with deviation 1 / sqrt(fan_in), which keeps a product's size.
Initializer by_fan_in() {
  return [](std::span<float> values, const Shape& shape, const std::function<double()>& uniform) {
    normal_init(1 / std::sqrt(static_cast<double>(shape[-1])))(values, shape, uniform);
  };
}

LayerConfig layer_config(const T5Config& config) {
  return {.width = config.width,
      .heads = config.heads,
      .hidden = config.hidden,
      .dropout = config.dropout,
      .hidden_dropout = config.dropout,
      .norm_place = NormPlace::kInput,
      .activation = config.activation,
      .epsilon = config.epsilon,
      .weights = by_fan_in(),
      .residual = by_fan_in(),
      .norms = NormKind::kRms,
      .biases = kNoBiases,
      .gated = config.gated,
      .head_size = config.head_size,
      .attention_scale = 1,
      .query_scale = 1 / std::sqrt(static_cast<double>(config.head_size))};
}
}  // namespace

template <class Layer>
T5Stack<Layer>::T5Stack(Module* parent, std::string name, const T5Config& config, int64_t layers, bool bidirectional)
    : Module(parent, std::move(name)), layers{this, "layers", layers, layer_config(config)},
      bias{this, "bias", {config.buckets, config.heads}, normal_init(1 / std::sqrt(static_cast<double>(config.width)))},
      norm{this, "norm", config.width, config.epsilon, NormKind::kRms}, dropout_in{this, "dropout_in",
                                                                            static_cast<float>(config.dropout)},
      dropout_out{this, "dropout_out", static_cast<float>(config.dropout)}, config(config),
      bidirectional(bidirectional) {}

template <class Layer>
Tensor T5Stack<Layer>::distance_bias(Graph& graph, int64_t queries, int64_t keys, Tensor position) {
  ModuleScope scope(*this);
  const DistanceBucketsAttrs attrs{queries, keys, config.buckets, config.max_distance, bidirectional};
  return permute(embedding(bias.tensor(), distance_buckets(graph, attrs, position)), {1, 0});
}

template <class Layer> Tensor T5Stack<Layer>::distance_bias_at(Tensor positions, int64_t keys) {
  ModuleScope scope(*this);
  const DistanceBucketsAttrs attrs{1, keys, config.buckets, config.max_distance, bidirectional};
  return permute(embedding(bias.tensor(), distance_buckets(*positions.graph, attrs, positions)), {0, 2, 1});
}

template struct T5Stack<EncoderLayer>;
template struct T5Stack<DecoderLayer>;

T5::T5(const T5Config& config)
    : config(config), tokens{this, "tokens", config.vocab_size, config.width, normal_init(1)},
      encoder{this, "encoder", config, config.encoder_layers, true}, decoder{this, "decoder", config,
                                                                         config.decoder_layers, false} {
  if (!config.tied_head) head.emplace(this, "head", Shape{config.vocab_size, config.width}, by_fan_in());
}

Tensor T5::encode(Tensor source, Tensor source_lengths) {
  const Tensor x = encoder.dropout_in(tokens(source));
  const int64_t length = source.dim(1);
  return encoder(x, {.lengths = source_lengths, .distance_bias = encoder.distance_bias(*x.graph, length, length)});
}

Tensor T5::scaled(Tensor hidden) const {
  return config.scaled_head ? hidden * (1 / std::sqrt(static_cast<double>(config.width))) : hidden;
}

Tensor T5::hidden(Tensor source, Tensor source_lengths, Tensor target_in) {
  const Tensor memory = encode(source, source_lengths);
  const Tensor x = decoder.dropout_in(tokens(target_in));
  const int64_t length = target_in.dim(1);
  const AttentionContext context{.causal = true,
      .distance_bias = decoder.distance_bias(*x.graph, length, length),
      .memory_lengths = source_lengths};
  return scaled(decoder(x, context, memory));
}

Tensor T5::decode(const TargetRows& rows) {
  const Tensor x = decoder.dropout_in(tokens(rows.tokens));
  const auto bias = [&] {
    if (rows.positions.defined()) return decoder.distance_bias_at(rows.positions, rows.keys);
    const int64_t length = rows.tokens.dim(1);
    const Tensor first = fill(*x.graph, {DType::kI32, {1}}, static_cast<double>(rows.past));
    return decoder.distance_bias(*x.graph, length, rows.past + length, first);
  };
  AttentionContext context = rows.context();
  context.distance_bias = bias();
  return logits(scaled(decoder(x, context, Tensor{})));
}

// Positions after a target's end are hidden by the causal mask and are no targets.
Tensor T5::loss(
    Tensor source, Tensor source_lengths, Tensor target_in, Tensor, Tensor targets, double label_smoothing) {
  return linear_cross_entropy_sum(
      hidden(source, source_lengths, target_in), head_weight(), std::nullopt, targets, label_smoothing);
}
}  // namespace linnet
