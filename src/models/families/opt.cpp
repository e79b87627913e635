// OPT (Zhang et al. 2022): GPT-2's layers with ReLU. The 350M model is post-norm, with a narrower token embedding.
#include "models/families/decoder_family.h"

namespace linnet {
namespace {
// Layers with the norms first have a last norm, unless it was removed.
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
}  // namespace

FamilyList families_of_opt() {
  using C = DecoderConfig;
  return {decoder_family({.model_type = "opt",
      .architectures = decoder_architectures("OPT"),
      .base = {.activation = Activation::kRelu, .first_position = 2, .scaled_residual = false},
      .fields = {field("vocab_size", &C::vocab_size, kSizes),
          field("max_position_embeddings", &C::max_seq_len, kSizes, 2048), size_fields<C>({.hidden = nullptr}),
          field("ffn_dim", &C::hidden, kSizes, [](const C& config) { return 4 * config.width; }),
          field("activation_function", &C::activation, kActivations, Activation::kRelu), norm_place(),
          other_width(
              "word_embed_proj_dim", &C::embedding_width, &C::width, [](const C& config) { return config.width; }),
          probability("dropout", &C::dropout, 0.1),
          probability("attention_dropout", &C::attention_dropout, 0, &C::dropout),
          number("init_std", &C::deviation, 0.02), field("pad_token_id", &C::pad_token, kIds, 1),
          field("tie_word_embeddings", &C::tied_head, true), fixed("enable_bias", true),
          fixed("layer_norm_elementwise_affine", true)},
      .names = DecoderNames{.inside = "decoder.",
          .own = {{"*.norm1", "self_attn_layer_norm"}, {"*.norm2", "final_layer_norm"},
              {"*.self_attn.out_proj", "self_attn.out_proj"}, {"*.linear1", "fc1"}, {"*.linear2", "fc2"},
              {"norm", "^final_layer_norm"}}}})};
}
}  // namespace linnet
