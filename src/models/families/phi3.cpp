// Phi-3 and Phi-4-mini (Abdin et al. 2024): Llama's layers with queries, keys and values in one tensor, and gate and up
// projection too; in Phi-4-mini a part of each head turns.
#include "models/families/decoder_family.h"

namespace linnet {
FamilyList families_of_phi3() {
  using C = DecoderConfig;
  return {decoder_family({.model_type = "phi3",
      .architectures = decoder_architectures("Phi3"),
      .base = llama_kind({.fused_gate = true}),
      .fields = llama_fields({positive("rms_norm_eps", &C::epsilon, 1e-5), probability("resid_pdrop", &C::dropout, 0),
                                 probability("embd_pdrop", &C::embedding_dropout, 0, &C::dropout),
                                 field("pad_token_id", &C::pad_token, kIds, 32000), window_field(0)},
          {.share = "partial_rotary_factor"}),
      .names =
          DecoderNames{.own = {{"*.self_attn.in_proj", "self_attn.qkv_proj"}, {"*.linear1", "mlp.gate_up_proj"}}}})};
}
}  // namespace linnet
