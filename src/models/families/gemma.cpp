// Gemma (Gemma Team 2024-2025): 1, 2 and the text models of 3. Norms multiply by 1 + weight; the token embedding is
// scaled by sqrt(width). Gemma 2 adds two norms per layer, soft caps, and windows in every other layer; Gemma 3 has
// norms of queries and keys instead of the caps, and another theta in layers with windows.
#include "models/families/decoder_family.h"

namespace linnet {
namespace {
DecoderConfig gemma_kind(NormPlace place, QueryKeyNorms norms = QueryKeyNorms::kNone) {
  DecoderConfig config = llama_kind({.norm_place = place, .query_key_norms = norms});
  config.norms = NormKind::kRmsPlusOne, config.activation = Activation::kGeluTanh;
  return config;
}

Fields<DecoderConfig> gemma_fields(const Fields<DecoderConfig>& more = {}) {
  using C = DecoderConfig;
  return llama_fields({field("head_dim", &C::head_size, kSizes, 256), whole_pairs_field(),
             field("hidden_activation", &C::activation, kActivations, Activation::kGeluTanh),
             field("tie_word_embeddings", &C::tied_head, true), field("pad_token_id", &C::pad_token, kIds, 0),
             fixed("attention_bias", false), {[](const ConfigFile&, C& config) {
               config.embedding_scale = std::sqrt(static_cast<double>(config.width));
             }}}) +
         more;
}

// Scores are divided by the root of this number, which may differ from the heads' size.
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

Field<DecoderConfig> cap(const char* key, double DecoderConfig::*member, double standard) {
  return {[=](const ConfigFile& file, DecoderConfig& config) {
            config.*member = file.mentions(key) ? file.number(key, 0) : standard;
            if (!(config.*member >= 0)) file.fail("\"", key, "\" is not a positive number");
          },
      [=](const DecoderConfig& config, ConfigFile& file) {
        config.*member > 0 ? file.set(key, config.*member) : file.set_null(key);
      }};
}

// Layers without a window use other families' keys; those with windows a theta of their own.
Field<DecoderConfig> local_rotary() {
  constexpr const char *kBoth = "rope_parameters", *kLocal = "rope_local_base_freq";
  return {[=](const ConfigFile& file, DecoderConfig& config) {
            RotaryConfig local{.theta = positive_of(file, kLocal, 1e4)};
            if (const ConfigFile both = file.object(kBoth); both.has("sliding_attention")) {
              local = read_rotary(both.object("sliding_attention"), config, local);
              const ConfigFile full = both.object("full_attention");
              const ConfigFile scaled = file.has("rope_scaling") ? file.object("rope_scaling") : full;
              config.rotary = read_rotary(scaled, config, {.theta = positive_of(full, "rope_theta", 1e6)});
            }
            for (LayerKind& kind : config.layer_kinds) kind.rotary = kind.window > 0 ? local : config.rotary;
          },
      [=](const DecoderConfig& config, ConfigFile& file) {
        for (const LayerKind& kind : config.layer_kinds)
          if (kind.window > 0) file.set(kLocal, kind.rotary->theta);
      }};
}
}  // namespace

FamilyList families_of_gemma() {
  const NamePatterns four_norms{{"*.norm2", "pre_feedforward_layernorm"}};
  return {
      decoder_family({.model_type = "gemma",
          .architectures = decoder_architectures("Gemma"),
          .base = gemma_kind(NormPlace::kInput),
          .fields = gemma_fields({field("hidden_act", &DecoderConfig::activation, kActivations, Activation::kGeluTanh),
              {[](const ConfigFile&, DecoderConfig& config) {  // "gelu" of the first files is the tanh formula
                if (config.activation == Activation::kGelu) config.activation = Activation::kGeluTanh;
              }}})}),
      decoder_family({.model_type = "gemma2",
          .architectures = decoder_architectures("Gemma2"),
          .base = gemma_kind(NormPlace::kInputAndResult),
          .fields = gemma_fields(
              {layer_types_field(4096, 2), score_scale(), cap("attn_logit_softcapping", &DecoderConfig::soft_cap, 50),
                  cap("final_logit_softcapping", &DecoderConfig::logit_cap, 30)}),
          .names = DecoderNames{.own = four_norms}}),
      decoder_family({.model_type = "gemma3_text",
          .architectures = {{"Gemma3ForCausalLM", ModelHead::kTokens}, {"Gemma3TextModel", ModelHead::kNone}},
          .base = gemma_kind(NormPlace::kInputAndResult, QueryKeyNorms::kHeads),
          .fields = gemma_fields({rotary_field({.standard_theta = 1e6}), whole_pairs_field(),
              layer_types_field(4096, 6), local_rotary(), score_scale(), fixed("use_bidirectional_attention", false),
              cap("final_logit_softcapping", &DecoderConfig::logit_cap, 0)}),
          // The vision tower of models from 4 billion parameters on is left out.
          .names = DecoderNames{.own = four_norms,
              .other_heads = {"vision_tower.*", "multi_modal_projector.*"},
              .old_beginnings = {{"language_model.model.", "model."}, {"language_model.lm_head.", "lm_head."},
                  {"model.language_model.", "model."}}}})};
}
}  // namespace linnet
