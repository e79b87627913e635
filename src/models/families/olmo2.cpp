// OLMo 2 (OLMo Team 2024): Llama's layers with norms of the sub-layers' results in place of their inputs, and of all
// queries and all keys of a token.
#include "models/families/decoder_family.h"

namespace linnet {
namespace {

DecoderConfig olmo2_kind() {
  DecoderConfig config = llama_kind({});
  config.norm_place = NormPlace::kResult, config.query_key_norms = QueryKeyNorms::kWhole;
  return config;
}

Fields<DecoderConfig> olmo2_fields() {
  using C = DecoderConfig;
  return llama_fields() + Fields<C>{positive("rms_norm_eps", &C::epsilon, 1e-5),
                                    field("pad_token_id", &C::pad_token, kIds, 1), fixed("attention_bias", false)};
}

NameTable olmo2_names(const DecoderConfig& config, ModelHead head) {
  return decoder_names(config, head,
                       {.result_norm1 = "post_attention_layernorm", .result_norm2 = "post_feedforward_layernorm"});
}

}  // namespace

FamilyList families_of_olmo2() {
  static const DecoderFamily family("olmo2", FamilyKind::kDecoder, decoder_architectures("Olmo2"), olmo2_kind(),
                                    olmo2_fields(), make_decoder, olmo2_names);
  return {&family};
}

}  // namespace linnet
