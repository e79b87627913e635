// OLMo 2 (OLMo Team 2024): Llama's layers with norms of sub-layer results, and of all queries and keys.
#include "models/families/decoder_family.h"

namespace linnet {
FamilyList families_of_olmo2() {
  using C = DecoderConfig;
  return {decoder_family({.model_type = "olmo2",
      .architectures = decoder_architectures("Olmo2"),
      .base = llama_kind({.norm_place = NormPlace::kResult, .query_key_norms = QueryKeyNorms::kWhole}),
      .fields = llama_fields({positive("rms_norm_eps", &C::epsilon, 1e-5),
          field("pad_token_id", &C::pad_token, kIds, 1), fixed("attention_bias", false)}),
      .names =
          DecoderNames{.own = {{"*.norm1", "post_attention_layernorm"}, {"*.norm2", "post_feedforward_layernorm"}}}})};
}
}  // namespace linnet
