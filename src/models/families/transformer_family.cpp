#include "models/families/transformer_family.h"

namespace linnet {
std::unique_ptr<Module> make_model(const TransformerConfig& config, const ConfigFile&, ModelHead) {
  return std::make_unique<Transformer>(config);
}

NameTable transformer_names(const TransformerConfig& config, ModelHead, const Module& model) {
  using enum TensorForm;
  using enum TensorRole;
  static const NamePatterns kEmbeddings = {{"shared_embedding", "model.shared"},
      {"source_embedding", "model.encoder.embed_tokens"}, {"target_embedding", "model.decoder.embed_tokens"},
      {"shared_embedding.weight", "model.encoder.embed_tokens.weight", kSame, kCopy},
      {"shared_embedding.weight", "model.decoder.embed_tokens.weight", kSame, kCopy},
      {"shared_embedding.weight", "lm_head.weight", kSame, kCopy},
      {"target_embedding.weight", "lm_head.weight", kSame, kCopy},
      {"source_positions", "model.encoder.embed_positions"}, {"source_norm", "model.encoder.layernorm_embedding"},
      {"encoder.norm", "model.encoder.layer_norm"}, {"target_positions", "model.decoder.embed_positions"},
      {"target_norm", "model.decoder.layernorm_embedding"}, {"decoder.norm", "model.decoder.layer_norm"},
      {"head.bias", "final_logits_bias", kOneRow, kOptional}};  // a bare model has none
  const NamePatterns shared = {{"*.self_attn.in_proj", "self_attn.q_proj self_attn.k_proj self_attn.v_proj"},
                         {"*.self_attn.out_proj", "self_attn.out_proj"}, {"*.norm1", "self_attn_layer_norm"},
                         {"*.linear1", "fc1"}, {"*.linear2", "fc2"}},
                     encoder = with(shared, {{"*.norm2", "final_layer_norm"}}),
                     decoder =
                         with(shared, {{"*.cross_attn.q_proj", "encoder_attn.q_proj"},
                                          {"*.cross_attn.kv_proj", "encoder_attn.k_proj encoder_attn.v_proj"},
                                          {"*.cross_attn.out_proj", "encoder_attn.out_proj"},
                                          {"*.norm2", "encoder_attn_layer_norm"}, {"*.norm3", "final_layer_norm"}});
  NameTable table{.prefix = "model.", .computed = {"encoder.version", "decoder.version"}};  // of fairseq
  table.add(model, kEmbeddings);
  table.add(model, in_full(encoder, "", "encoder.layers.*.", "model.encoder.layers.*."));
  table.add(model, in_full(decoder, "", "decoder.layers.*.", "model.decoder.layers.*."));
  if (config.positions != Positions::kLearned) table.computed.push_back("*.embed_positions.weight*");
  return table;
}

Field<TransformerConfig> same_in_both(const char* encoder, const char* decoder, int64_t TransformerConfig::*member) {
  return {[=](const ConfigFile& file, TransformerConfig& config) {
            const int64_t size = config.*member = integer_in(file, encoder, kSizes);
            if (const int64_t other = integer_in(file, decoder, kSizes); other != size)
              file.fail("\"", encoder, "\" is ", size, " and \"", decoder, "\" is ", other,
                  ", Linnet supports only the same in both");
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
  return {fixed("tie_word_embeddings", true), written("is_encoder_decoder", true),
      field("d_model", &C::d_model, kWidths),
      same_in_both("encoder_attention_heads", "decoder_attention_heads", &C::num_heads),
      multiple("d_model", &C::d_model, "encoder_attention_heads", &C::num_heads),
      same_in_both("encoder_ffn_dim", "decoder_ffn_dim", &C::d_ff),
      field("encoder_layers", &C::num_encoder_layers, kLayers),
      field("decoder_layers", &C::num_decoder_layers, kLayers),
      field("max_position_embeddings", &C::max_seq_len, kSizes), probability("dropout", &C::dropout, 0.1),
      probability("attention_dropout", &C::attention_dropout, 0, &C::dropout),
      probability("activation_dropout", &C::hidden_dropout, 0, &C::dropout),
      field("activation_function", &C::activation, kActivations, activation),
      field("scale_embedding", &C::scale_embedding, scaled), field("pad_token_id", &C::pad_token, kIds, -1)};
}
}  // namespace linnet
