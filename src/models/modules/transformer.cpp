#include "models/modules/transformer.h"
#include "base/fail.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/movement/movement.h"
#include "models/nn/trace.h"

namespace linnet {
namespace {
LayerConfig layer_config(const TransformerConfig& config) {
  return {.width = config.d_model,
      .heads = config.num_heads,
      .hidden = config.d_ff,
      .dropout = config.dropout,
      .hidden_dropout = config.hidden_dropout.value_or(config.dropout),
      .norm_place = config.norm_first ? NormPlace::kInput : NormPlace::kSum,
      .activation = config.activation,
      .attention_dropout = config.attention_dropout};
}

// Sines, then cosines; position p has row `first` + p.
Initializer inclusive_positions(int64_t first) {
  return [first](std::span<float> values, const Shape& shape, const auto&) {
    const int64_t width = shape[1], half = width / 2;
    for (int64_t row = 0; row < shape[0]; ++row)
      for (int64_t i = 0; i < half; ++i) {
        const double exponent = static_cast<double>(i) / static_cast<double>(std::max<int64_t>(half - 1, 1));
        const double angle = static_cast<double>(first + row) * std::pow(10000.0, -exponent);
        values[row * width + i] = static_cast<float>(std::sin(angle));
        values[row * width + half + i] = static_cast<float>(std::cos(angle));
      }
  };
}

Initializer zeros_then_ones() {
  return [](std::span<float> values, const Shape& shape, const auto&) {
    const auto row = static_cast<size_t>(shape[1]);
    std::ranges::fill(values.first(row), 0.0f);
    std::ranges::fill(values.subspan(row), 1.0f);
  };
}
}  // namespace

template <class Layer>
LayerStack<Layer>::LayerStack(Module* parent, std::string name, int64_t count, const TransformerConfig& config)
    : Module(parent, std::move(name)), layers{this, "layers", count, layer_config(config)} {
  if (config.final_norm) norm.emplace(this, "norm", config.d_model);
}

Head::Head(Module* parent, std::string name, const TransformerConfig& config) : Module(parent, std::move(name)) {
  if (config.head_bias) bias.emplace(this, "bias", Shape{config.target_vocab}, constant_init(0));
  if (!config.tie_head) weight.emplace(this, "weight", Shape{config.target_vocab, config.d_model}, xavier_uniform());
}

Tensor Head::operator()(Tensor x, const Embedding& target_embedding) {
  ModuleScope scope(*this);
  const Tensor logits = matmul(x, weight ? *weight : target_embedding.weight, false, true);
  return bias ? logits + *bias : logits;
}

Tensor Head::loss(Tensor x, const Embedding& target_embedding, Tensor targets, double label_smoothing) {
  ModuleScope scope(*this);
  return linear_cross_entropy_sum(x, weight ? *weight : target_embedding.weight,
      bias ? std::optional(bias->tensor()) : std::nullopt, targets, label_smoothing);
}

Transformer::Transformer(const TransformerConfig& config)
    : config(config), embedding_dropout{this, "embedding_dropout", static_cast<float>(config.dropout)},
      encoder{this, "encoder", config.num_encoder_layers, config},
      decoder{this, "decoder", config.num_decoder_layers, config}, head{this, "head", config} {
  if (config.share_embeddings && config.source_vocab != config.target_vocab)
    fail_user("shared embeddings need one vocabulary, got ", config.source_vocab, " and ", config.target_vocab);
  const double root = std::sqrt(static_cast<double>(config.d_model));
  const Initializer small = normal_init(1 / root);
  if (config.positions == Positions::kLearned) {
    const int64_t rows = config.first_position + config.max_seq_len;
    source_positions.emplace(this, "source_positions", rows, config.d_model, small);
    target_positions.emplace(this, "target_positions", rows, config.d_model, small);
  } else {
    positions.emplace(this, "positions", Shape{config.max_seq_len, config.d_model},
        config.positions == Positions::kInclusive ? inclusive_positions(config.first_position)
                                                  : sinusoidal_positions(config.positions == Positions::kHalved));
  }
  if (config.zero_start)
    after_start.emplace(this, "after_start", Shape{config.max_seq_len, config.d_model}, zeros_then_ones());
  if (config.embedding_norm) {
    source_norm.emplace(this, "source_norm", config.d_model);
    target_norm.emplace(this, "target_norm", config.d_model);
  }
  if (config.share_embeddings) {
    shared_embedding.emplace(this, "shared_embedding", config.source_vocab, config.d_model, small);
  } else {
    source_embedding.emplace(this, "source_embedding", config.source_vocab, config.d_model, small);
    target_embedding.emplace(this, "target_embedding", config.target_vocab, config.d_model, small);
  }
  for (Embedding* table : {&source_table(), &target_table()}) {
    table->padding = config.pad_token;
    if (config.scale_embedding) table->scale = root;
  }
}

Tensor Transformer::add_positions(Tensor embedded, bool of_target, const RowsOf& at) {
  const auto rows = [&](Tensor table) { return at ? at(table) : slice(table, 0, 0, embedded.dim(1)); };
  if (of_target && after_start) embedded = embedded * rows(after_start->tensor());
  if (positions) {
    embedded = embedded + rows(positions->tensor());
  } else {
    const Tensor table = (of_target ? target_positions : source_positions)->weight;
    embedded = embedded + rows(slice(table, 0, config.first_position, config.max_seq_len));
  }
  std::optional<LayerNorm>& norm = of_target ? target_norm : source_norm;
  return embedding_dropout(norm ? (*norm)(embedded) : embedded);
}

Tensor Transformer::encode(Tensor source, Tensor source_lengths) {
  return encoder(add_positions(source_table()(source), false), {.lengths = source_lengths});
}

Tensor Transformer::hidden(Tensor source, Tensor source_lengths, Tensor target_in, Tensor target_lengths) {
  const Tensor memory = encode(source, source_lengths);
  return decoder(add_positions(target_table()(target_in), true),
      {.lengths = target_lengths, .causal = true, .memory_lengths = source_lengths}, memory);
}

Tensor Transformer::decode(const TargetRows& rows) {
  const Tensor x = add_positions(target_table()(rows.tokens), true, [&](Tensor table) {
    return rows.positions.defined() ? embedding(table, rows.positions) : slice(table, 0, rows.past, rows.tokens.dim(1));
  });
  return head(decoder(x, rows.context(), Tensor{}), target_table());
}

Tensor Transformer::operator()(Tensor source, Tensor source_lengths, Tensor target_in, Tensor target_lengths) {
  return head(hidden(source, source_lengths, target_in, target_lengths), target_table());
}

Tensor Transformer::loss(Tensor source, Tensor source_lengths, Tensor target_in, Tensor target_lengths, Tensor targets,
    double label_smoothing) {
  return head.loss(hidden(source, source_lengths, target_in, target_lengths), target_table(), targets, label_smoothing);
}
}  // namespace linnet
