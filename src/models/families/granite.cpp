// Granite 3 (Granite Team 2024): Llama's layers with four multipliers.
#include "models/families/decoder_family.h"

namespace linnet {
namespace {
Field<DecoderConfig> logits_scaling() {
  constexpr const char* kKey = "logits_scaling";
  return {[=](const ConfigFile& file, DecoderConfig& config) { config.logit_scale = 1 / positive_of(file, kKey, 1); },
      [=](const DecoderConfig& config, ConfigFile& file) { file.set(kKey, 1 / config.logit_scale); }};
}
}  // namespace

FamilyList families_of_granite() {
  using C = DecoderConfig;
  return {decoder_family({.model_type = "granite",
      .architectures = decoder_architectures("Granite"),
      .base = llama_kind({}),
      .fields = llama_fields({bias_fields(), positive("embedding_multiplier", &C::embedding_scale, 1),
          positive("attention_multiplier", &C::attention_scale, 1),
          positive("residual_multiplier", &C::residual_scale, 1), logits_scaling(),
          field("pad_token_id", &C::pad_token, kIds, -1)})})};
}
}  // namespace linnet
