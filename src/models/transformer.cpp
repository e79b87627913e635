#include "models/transformer.h"

#include "base/error.h"
#include "nn/trace.h"
#include "ops/embedding/embedding.h"
#include "ops/movement/movement.h"

namespace linnet {
namespace {

AttentionConfig attention_config(const TransformerConfig& config) {
  return {config.d_model, config.num_heads, static_cast<float>(config.dropout)};
}

// One residual sub-layer:  pre-LN  x + dropout(f(norm(x)))    post-LN  norm(x + dropout(f(x)))
template <class SubLayer>
Tensor residual(Tensor x, bool norm_first, LayerNorm& norm, Dropout& dropout, SubLayer f) {
  if (norm_first) return x + dropout(f(norm(x)));
  return norm(x + dropout(f(x)));
}

}  // namespace

// The two projections are named directly under the layer, as PyTorch does: this module adds no name of its own.
FeedForward::FeedForward(Module* parent, const TransformerConfig& config)
    : Module(parent, ""),
      activation(config.activation),
      linear1{this, "linear1", config.d_model, config.d_ff},
      linear2{this, "linear2", config.d_ff, config.d_model},
      dropout{this, "dropout", static_cast<float>(config.dropout)} {}

Tensor FeedForward::operator()(Tensor x) {
  const Tensor hidden = linear1(x);
  return linear2(dropout(activation == Activation::kRelu ? relu(hidden) : gelu(hidden)));
}

EncoderLayer::EncoderLayer(Module* parent, std::string name, const TransformerConfig& config)
    : Module(parent, std::move(name)),
      norm_first(config.norm_first),
      self_attn{this, "self_attn", attention_config(config)},
      feed_forward{this, config},
      norm1{this, "norm1", config.d_model},
      norm2{this, "norm2", config.d_model},
      dropout1{this, "dropout1", static_cast<float>(config.dropout)},
      dropout2{this, "dropout2", static_cast<float>(config.dropout)} {}

Tensor EncoderLayer::operator()(Tensor x, Tensor lengths) {
  ModuleScope scope(*this);
  x = residual(x, norm_first, norm1, dropout1, [&](Tensor y) { return self_attn(y, lengths, false); });
  return residual(x, norm_first, norm2, dropout2, [&](Tensor y) { return feed_forward(y); });
}

DecoderLayer::DecoderLayer(Module* parent, std::string name, const TransformerConfig& config)
    : Module(parent, std::move(name)),
      norm_first(config.norm_first),
      self_attn{this, "self_attn", attention_config(config)},
      cross_attn{this, "cross_attn", attention_config(config)},
      feed_forward{this, config},
      norm1{this, "norm1", config.d_model},
      norm2{this, "norm2", config.d_model},
      norm3{this, "norm3", config.d_model},
      dropout1{this, "dropout1", static_cast<float>(config.dropout)},
      dropout2{this, "dropout2", static_cast<float>(config.dropout)},
      dropout3{this, "dropout3", static_cast<float>(config.dropout)} {}

Tensor DecoderLayer::operator()(Tensor x, Tensor lengths, Tensor memory, Tensor memory_lengths) {
  ModuleScope scope(*this);
  x = residual(x, norm_first, norm1, dropout1, [&](Tensor y) { return self_attn(y, lengths, true); });
  x = residual(x, norm_first, norm2, dropout2, [&](Tensor y) { return cross_attn(y, memory, memory_lengths); });
  return residual(x, norm_first, norm3, dropout3, [&](Tensor y) { return feed_forward(y); });
}

Tensor DecoderLayer::step(Tensor x, const DecodeStep& step, Tensor keys_values, Tensor memory_lengths) {
  ModuleScope scope(*this);
  x = residual(x, norm_first, norm1, dropout1, [&](Tensor y) { return self_attn.step(y, step); });
  x = residual(x, norm_first, norm2, dropout2,
               [&](Tensor y) { return cross_attn.step(y, keys_values, memory_lengths, step.beams); });
  return residual(x, norm_first, norm3, dropout3, [&](Tensor y) { return feed_forward(y); });
}

Encoder::Encoder(Module* parent, std::string name, const TransformerConfig& config)
    : Module(parent, std::move(name)), layers{this, "layers", config.num_encoder_layers, config} {
  if (config.final_norm) norm.emplace(this, "norm", config.d_model);
}

Tensor Encoder::operator()(Tensor x, Tensor lengths) {
  for (size_t i = 0; i < layers.size(); ++i) x = layers[i](x, lengths);
  return norm ? (*norm)(x) : x;
}

Decoder::Decoder(Module* parent, std::string name, const TransformerConfig& config)
    : Module(parent, std::move(name)), layers{this, "layers", config.num_decoder_layers, config} {
  if (config.final_norm) norm.emplace(this, "norm", config.d_model);
}

Tensor Decoder::operator()(Tensor x, Tensor lengths, Tensor memory, Tensor memory_lengths) {
  for (size_t i = 0; i < layers.size(); ++i) x = layers[i](x, lengths, memory, memory_lengths);
  return norm ? (*norm)(x) : x;
}

Head::Head(Module* parent, std::string name, const TransformerConfig& config)
    : Module(parent, std::move(name)), bias{this, "bias", {config.target_vocab}, constant_init(0)} {
  if (!config.tie_head) weight.emplace(this, "weight", Shape{config.target_vocab, config.d_model}, glorot_uniform());
}

Tensor Head::operator()(Tensor x, const Embedding& target_embedding) {
  ModuleScope scope(*this);
  return matmul(x, weight ? *weight : target_embedding.weight, false, true) + bias;
}

Transformer::Transformer(const TransformerConfig& config)
    : config(config),
      positions{this, "positions", {config.max_seq_len, config.d_model}, sinusoidal_positions()},
      embedding_dropout{this, "embedding_dropout", static_cast<float>(config.dropout)},
      encoder{this, "encoder", config},
      decoder{this, "decoder", config},
      head{this, "head", config} {
  if (config.share_embeddings && config.source_vocab != config.target_vocab)
    fail_user("shared embeddings need one vocabulary, got " + std::to_string(config.source_vocab) + " and " +
              std::to_string(config.target_vocab));
  if (config.share_embeddings) {
    shared_embedding.emplace(this, "shared_embedding", config.source_vocab, config.d_model);
  } else {
    source_embedding.emplace(this, "source_embedding", config.source_vocab, config.d_model);
    target_embedding.emplace(this, "target_embedding", config.target_vocab, config.d_model);
  }
}

Tensor Transformer::embed(Embedding& table, Tensor ids) {
  return embedding_dropout(table(ids) + slice(positions.tensor(), 0, 0, ids.dim(1)));
}

Tensor Transformer::encode(Tensor source, Tensor source_lengths) {
  return encoder(embed(source_table(), source), source_lengths);
}

Tensor Transformer::operator()(Tensor source, Tensor source_lengths, Tensor target_in, Tensor target_lengths) {
  const Tensor memory = encode(source, source_lengths);
  return head(decoder(embed(target_table(), target_in), target_lengths, memory, source_lengths), target_table());
}

void Transformer::prefill(Tensor source, Tensor source_lengths) {
  const Tensor memory = encode(source, source_lengths);
  for (size_t i = 0; i < decoder.layers.size(); ++i) {
    const Tensor keys_values = decoder.layers[i].cross_attn.project_memory(memory);
    memory.graph->update(memory.graph->input("memory." + std::to_string(i), keys_values.type()), keys_values);
  }
}

Tensor Transformer::step(Tensor tokens, const DecodeStep& step, int64_t memory_length, Tensor source_lengths) {
  const int64_t rows = tokens.dim(0), width = config.d_model;
  Graph& graph = *tokens.graph;
  Tensor x = reshape(target_table()(tokens) + embedding(positions.tensor(), step.position), {rows, 1, width});
  for (size_t i = 0; i < decoder.layers.size(); ++i) {
    const Tensor keys_values =
        graph.input("memory." + std::to_string(i), {x.type().dtype, {rows / step.beams, memory_length, 2 * width}});
    x = decoder.layers[i].step(x, step, keys_values, source_lengths);
  }
  if (decoder.norm) x = (*decoder.norm)(x);
  return reshape(head(x, target_table()), {rows, config.target_vocab});
}

}  // namespace linnet
