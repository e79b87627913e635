// Gemma (Gemma Team 2024-2025): 1, 2 and the text models of 3. Norms multiply by 1 + weight, and the token embedding is
// scaled by sqrt(width). Gemma 2 has two norms more in a layer, soft caps, and windows in every other layer; Gemma 3
// norms of queries and keys in place of the caps, and another theta in layers with windows.
#include <cmath>
#include "models/families/decoder_family.h"

namespace linnet {
namespace {

DecoderConfig gemma_kind(NormPlace place) {
  DecoderConfig config = llama_kind({});
  config.norms = NormKind::kRmsPlusOne, config.norm_place = place;
  config.activation = Activation::kGeluTanh;
  return config;
}

DecoderConfig gemma3_kind() {
  DecoderConfig config = gemma_kind(NormPlace::kInputAndResult);
  config.query_key_norms = QueryKeyNorms::kHeads;
  return config;
}

Fields<DecoderConfig> gemma_fields() {
  using C = DecoderConfig;
  return llama_fields() + Fields<C>{field("head_dim", &C::head_size, kSizes, 256),
                                    whole_pairs_field(),
                                    field("hidden_activation", &C::activation, kActivations, Activation::kGeluTanh),
                                    field("tie_word_embeddings", &C::tied_head, true),
                                    field("pad_token_id", &C::pad_token, kIds, 0),
                                    fixed("attention_bias", false),
                                    {[](const ConfigFile&, C& config) {
                                      config.embedding_scale = std::sqrt(static_cast<double>(config.width));
                                    }}};
}

// Scores are divided by the root of a number that is not always the heads' size.
Field<DecoderConfig> score_scale() {
  constexpr const char* kKey = "query_pre_attn_scalar";
  return {[=](const ConfigFile& file, DecoderConfig& config) {
            config.attention_scale = 1 / std::sqrt(positive_of(file, kKey, 256));
          },
          [=](const DecoderConfig& config, ConfigFile& file) {
            const double scale = config.attention_scale;
            file.set(kKey, scale > 0 ? std::round(1 / (scale * scale)) : static_cast<double>(config.head_size));
          }};
}

// A soft cap; null: none.
Field<DecoderConfig> cap(const char* key, double DecoderConfig::*member, double standard) {
  return {[=](const ConfigFile& file, DecoderConfig& config) {
            config.*member = file.mentions(key) ? file.number(key, 0) : standard;
            if (!(config.*member >= 0)) file.fail(std::string("\"") + key + "\" is not a positive number");
          },
          [=](const DecoderConfig& config, ConfigFile& file) {
            config.*member > 0 ? file.set(key, config.*member) : file.set_null(key);
          }};
}
Fields<DecoderConfig> caps(double of_scores, double of_logits) {
  return {cap("attn_logit_softcapping", &DecoderConfig::soft_cap, of_scores),
          cap("final_logit_softcapping", &DecoderConfig::logit_cap, of_logits)};
}

// Layers that see all positions have the theta and the scaling of other families' keys; those with windows a theta.
Field<DecoderConfig> local_rotary() {
  constexpr const char *kBoth = "rope_parameters", *kLocal = "rope_local_base_freq";
  return {[=](const ConfigFile& file, DecoderConfig& config) {
            RotaryConfig local{.theta = positive_of(file, kLocal, 1e4)};
            if (const ConfigFile both = file.object(kBoth); both.has("sliding_attention")) {
              local = read_rotary(both.object("sliding_attention"), config, local);
              config.rotary = read_rotary(both.object("full_attention"), config, {.theta = 1e6});
            }
            for (LayerKind& kind : config.layer_kinds) kind.rotary = kind.window > 0 ? local : config.rotary;
          },
          [=](const DecoderConfig& config, ConfigFile& file) {
            for (const LayerKind& kind : config.layer_kinds)
              if (kind.window > 0) file.set(kLocal, kind.rotary->theta);
          }};
}

NameTable four_norm_names(const DecoderConfig& config, ModelHead head) {
  return decoder_names(config, head,
                       {.norm2 = "pre_feedforward_layernorm",
                        .result_norm1 = "post_attention_layernorm",
                        .result_norm2 = "post_feedforward_layernorm"});
}

// Gemma 3 of 4 billion parameters and more comes with a tower for pictures, which is left out.
NameTable gemma3_names(const DecoderConfig& config, ModelHead head) {
  NameTable names = four_norm_names(config, head);
  names.old_beginnings = {{"language_model.model.", "model."},
                          {"language_model.lm_head.", "lm_head."},
                          {"model.language_model.", "model."}};
  names.other_heads.insert(names.other_heads.end(), {"vision_tower.*", "multi_modal_projector.*"});
  return names;
}

}  // namespace

FamilyList families_of_gemma() {
  using Rows = Fields<DecoderConfig>;
  static const DecoderFamily gemma("gemma", FamilyKind::kDecoder, decoder_architectures("Gemma"),
                                   gemma_kind(NormPlace::kInput), gemma_fields(), make_decoder, llama_names);
  static const DecoderFamily gemma2(
      "gemma2", FamilyKind::kDecoder, decoder_architectures("Gemma2"), gemma_kind(NormPlace::kInputAndResult),
      gemma_fields() + Rows{layer_types_field(4096, 2), score_scale()} + caps(50, 30), make_decoder, four_norm_names);
  static const DecoderFamily gemma3(
      "gemma3_text", FamilyKind::kDecoder,
      {{"Gemma3ForCausalLM", ModelHead::kTokens}, {"Gemma3TextModel", ModelHead::kNone}}, gemma3_kind(),
      gemma_fields() +
          Rows{rotary_field({.standard_theta = 1e6}), whole_pairs_field(), layer_types_field(4096, 6), local_rotary(),
               score_scale(), fixed("use_bidirectional_attention", false)} +
          caps(0, 0),
      make_decoder, gemma3_names);
  return {&gemma, &gemma2, &gemma3};
}

}  // namespace linnet
