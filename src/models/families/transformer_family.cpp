#include "models/families/transformer_family.h"

namespace linnet {
namespace {

void add_self_attention(NameTable& table, int64_t width, const std::string& theirs, const std::string& ours) {
  const std::string from = theirs + "self_attn.", to = ours + "self_attn.";
  table.add_stacked({from + "q_proj", from + "k_proj", from + "v_proj"}, {width, width, width}, to + "in_proj");
  table.add_linear(from + "out_proj", to + "out_proj");
  table.add_linear(theirs + "self_attn_layer_norm", ours + "norm1");
}

void add_feed_forward(NameTable& table, const std::string& theirs, const std::string& ours, const std::string& norm) {
  table.add_linear(theirs + "fc1", ours + "linear1");
  table.add_linear(theirs + "fc2", ours + "linear2");
  table.add_linear(theirs + "final_layer_norm", ours + norm);
}

void add_cross_attention(NameTable& table, int64_t width, const std::string& theirs, const std::string& ours) {
  const std::string from = theirs + "encoder_attn.", to = ours + "cross_attn.";
  table.add_linear(from + "q_proj", to + "q_proj");
  table.add_stacked({from + "k_proj", from + "v_proj"}, {width, width}, to + "kv_proj");
  table.add_linear(from + "out_proj", to + "out_proj");
  table.add_linear(theirs + "encoder_attn_layer_norm", ours + "norm2");
}

void add_embeddings(NameTable& table, const TransformerConfig& config) {
  const std::string source = "model.encoder.embed_tokens.weight", target = "model.decoder.embed_tokens.weight";
  if (config.share_embeddings) {
    table.add("model.shared.weight", "shared_embedding.weight");
    for (const std::string& copy : {source, target, std::string("lm_head.weight")})
      table.add_copy(copy, "shared_embedding.weight");
  } else {
    table.add(source, "source_embedding.weight");
    table.add(target, "target_embedding.weight");
    table.add_copy("lm_head.weight", "target_embedding.weight");
  }
}

// Of one side, beside its layers.
void add_side(NameTable& table, const TransformerConfig& config, const std::string& theirs, const std::string& ours,
              const std::string& side) {
  if (config.positions == Positions::kLearned) table.add(theirs + "embed_positions.weight", side + "_positions.weight");
  if (config.embedding_norm) table.add_linear(theirs + "layernorm_embedding", side + "_norm");
  if (config.final_norm) table.add_linear(theirs + "layer_norm", ours + "norm");
}

}  // namespace

std::unique_ptr<Module> make_transformer(const TransformerConfig& config, const ConfigFile&, ModelHead) {
  return std::make_unique<Transformer>(config);
}

NameTable transformer_names(const TransformerConfig& config, ModelHead) {
  NameTable table;
  table.prefix = "model.";
  add_embeddings(table, config);
  add_side(table, config, "model.encoder.", "encoder.", "source");
  add_side(table, config, "model.decoder.", "decoder.", "target");
  for (int64_t i = 0; i < config.num_encoder_layers; ++i) {
    const std::string layer = "layers." + std::to_string(i) + ".", theirs = "model.encoder." + layer,
                      ours = "encoder." + layer;
    add_self_attention(table, config.d_model, theirs, ours);
    add_feed_forward(table, theirs, ours, "norm2");
  }
  for (int64_t i = 0; i < config.num_decoder_layers; ++i) {
    const std::string layer = "layers." + std::to_string(i) + ".", theirs = "model.decoder." + layer,
                      ours = "decoder." + layer;
    add_self_attention(table, config.d_model, theirs, ours);
    add_cross_attention(table, config.d_model, theirs, ours);
    add_feed_forward(table, theirs, ours, "norm3");
  }
  // A bare model has none.
  if (config.head_bias) table.add("final_logits_bias", "head.bias", TensorForm::kOneRow, TensorRole::kOptional);
  table.computed = {"encoder.version", "decoder.version"};  // of fairseq
  if (config.positions != Positions::kLearned) table.computed.push_back("*.embed_positions.weight*");
  return table;
}

Field<TransformerConfig> same_in_both(const char* encoder, const char* decoder, int64_t TransformerConfig::*member) {
  return {[=](const ConfigFile& file, TransformerConfig& config) {
            const int64_t size = config.*member = integer_in(file, encoder, kSizes);
            if (const int64_t other = integer_in(file, decoder, kSizes); other != size)
              file.fail("\"" + std::string(encoder) + "\" is " + std::to_string(size) + " and \"" + decoder + "\" is " +
                        std::to_string(other) + ", Linnet supports only the same in both");
          },
          [=](const TransformerConfig& config, ConfigFile& file) {
            file.set(encoder, config.*member);
            file.set(decoder, config.*member);
          }};
}

Field<TransformerConfig> shared_vocabulary() {
  return {[](const ConfigFile& file, TransformerConfig& config) {
            config.source_vocab = config.target_vocab = integer_in(file, "vocab_size", kSizes);
          },
          [](const TransformerConfig& config, ConfigFile& file) { file.set("vocab_size", config.source_vocab); }};
}

Fields<TransformerConfig> transformer_fields(Activation activation, bool scaled) {
  using C = TransformerConfig;
  return {fixed("tie_word_embeddings", true),
          written("is_encoder_decoder", true),
          field("d_model", &C::d_model, kWidths),
          same_in_both("encoder_attention_heads", "decoder_attention_heads", &C::num_heads),
          multiple("d_model", &C::d_model, "encoder_attention_heads", &C::num_heads),
          same_in_both("encoder_ffn_dim", "decoder_ffn_dim", &C::d_ff),
          field("encoder_layers", &C::num_encoder_layers, kLayers),
          field("decoder_layers", &C::num_decoder_layers, kLayers),
          field("max_position_embeddings", &C::max_seq_len, kSizes),
          probability("dropout", &C::dropout, 0.1),
          probability("attention_dropout", &C::attention_dropout, 0, &C::dropout),
          probability("activation_dropout", &C::hidden_dropout, 0, &C::dropout),
          field("activation_function", &C::activation, kActivations, activation),
          field("scale_embedding", &C::scale_embedding, scaled),
          field("pad_token_id", &C::pad_token, kIds, -1)};
}

}  // namespace linnet
