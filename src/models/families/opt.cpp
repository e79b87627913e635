// OPT (Zhang et al. 2022): GPT-2's layers with ReLU, and positions that begin at row 2 of their table. The model of
// 350M has norms after the sub-layers, and a token embedding that is narrower than the layers.
#include "models/families/decoder_family.h"

namespace linnet {
namespace {

DecoderConfig opt_kind() {
  DecoderConfig config;
  config.activation = Activation::kRelu, config.first_position = 2;
  config.scaled_residual = false;
  return config;
}

// The last norm belongs to layers whose norms come first, unless it was removed.
Field<DecoderConfig> norm_place() {
  constexpr const char* kKey = "do_layer_norm_before";
  return {[=](const ConfigFile& file, DecoderConfig& config) {
            const bool before = file.flag(kKey, true);
            config.norm_place = before ? NormPlace::kInput : NormPlace::kSum;
            config.final_norm = before && !file.flag("_remove_final_layer_norm", false);
          },
          [=](const DecoderConfig& config, ConfigFile& file) {
            const bool before = config.norm_place == NormPlace::kInput;
            file.set(kKey, before);
            file.set("_remove_final_layer_norm", before && !config.final_norm);
          }};
}

Field<DecoderConfig> embedding_width() {
  constexpr const char* kKey = "word_embed_proj_dim";
  return {[=](const ConfigFile& file, DecoderConfig& config) {
            const int64_t width = file.has(kKey) ? integer_in(file, kKey, kWidths) : config.width;
            config.embedding_width = width == config.width ? 0 : width;
          },
          [=](const DecoderConfig& config, ConfigFile& file) {
            file.set(kKey, config.embedding_width > 0 ? config.embedding_width : config.width);
          }};
}

Fields<DecoderConfig> opt_fields() {
  using C = DecoderConfig;
  return {field("vocab_size", &C::vocab_size, kSizes),
          field("max_position_embeddings", &C::max_seq_len, kSizes, 2048),
          field("hidden_size", &C::width, kWidths),
          field("num_attention_heads", &C::heads, kSizes),
          multiple("hidden_size", &C::width, "num_attention_heads", &C::heads),
          field("num_hidden_layers", &C::layers, kLayers),
          field("ffn_dim", &C::hidden, kSizes, [](const C& config) { return 4 * config.width; }),
          field("activation_function", &C::activation, kActivations, Activation::kRelu),
          norm_place(),
          embedding_width(),
          probability("dropout", &C::dropout, 0.1),
          probability("attention_dropout", &C::attention_dropout, 0, &C::dropout),
          number("init_std", &C::deviation, 0.02),
          field("pad_token_id", &C::pad_token, kIds, 1),
          field("tie_word_embeddings", &C::tied_head, true),
          fixed("enable_bias", true),
          fixed("layer_norm_elementwise_affine", true)};
}

NameTable opt_names(const DecoderConfig& config, ModelHead head) {
  return decoder_names(config, head,
                       {.inside = "decoder.",
                        .positions = "embed_positions",
                        .final_norm = "final_layer_norm",
                        .norm1 = "self_attn_layer_norm",
                        .norm2 = "final_layer_norm",
                        .output = "self_attn.out_proj",
                        .linear1 = "fc1",
                        .linear2 = "fc2"});
}

}  // namespace

FamilyList families_of_opt() {
  static const DecoderFamily family("opt", FamilyKind::kDecoder, decoder_architectures("OPT"), opt_kind(), opt_fields(),
                                    make_decoder, opt_names);
  return {&family};
}

}  // namespace linnet
