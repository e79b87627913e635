// MPNet (Song et al. 2020): RoBERTa's layers with a score bias by distance that all layers share, and no token types.
#include "models/families/encoder_family.h"

namespace linnet {
FamilyList families_of_mpnet() {
  using C = EncoderConfig;
  // The padding token is 1 in all models, whatever config.json says.
  const auto set_padding = [](const ConfigFile&, C& config) { config.token_types = 0, config.pad_token = 1; };
  const auto check_buckets = [](const ConfigFile& file, C& config) {
    if (config.distance_buckets != 32) file.fail("\"relative_attention_num_buckets\" is not 32");
  };
  return {encoder_family({.model_type = "mpnet",
      .architectures = encoder_architectures("MPNet"),
      .base = {.token_types = 0, .pooler_dropout = true},
      .fields = bert_fields({{set_padding}, positions_after_padding(),
          field("relative_attention_num_buckets", &C::distance_buckets, kSizes, 32), {check_buckets}}),
      .names = EncoderNames{.prefix = "mpnet.",
          .own = {{"bert.distance_bias", "^encoder.relative_attention_bias.weight"},
              {"*.self_attn.in_proj", "attention.attn.q attention.attn.k attention.attn.v"},
              {"*.self_attn.out_proj", "attention.attn.o"}, {"*.norm1", "attention.LayerNorm"}},
          .masked_dense = "lm_head.dense",
          .masked_norm = "lm_head.layer_norm",
          .masked_bias = "lm_head.bias",
          .masked_copies = {"lm_head.decoder.weight", "lm_head.decoder.bias"},
          .class_dense = "classifier.dense",
          .classifier = "classifier.out_proj",
          .heads = {"pooler.*", "lm_head.*", "classifier.*"}}})};
}
}  // namespace linnet
