// Phi-3 and Phi-4-mini (Abdin et al. 2024): Llama's layers, whose queries, keys and values are one tensor, as gate and
// up projection are; in Phi-4-mini a part of each head turns.
#include "models/families/decoder_family.h"

namespace linnet {
namespace {

DecoderConfig phi3_kind() {
  DecoderConfig config = llama_kind({});
  config.fused_gate = true;
  return config;
}

Fields<DecoderConfig> phi3_fields() {
  using C = DecoderConfig;
  return llama_fields() + Fields<C>{positive("rms_norm_eps", &C::epsilon, 1e-5),
                                    probability("resid_pdrop", &C::dropout, 0),
                                    probability("embd_pdrop", &C::embedding_dropout, 0, &C::dropout),
                                    field("pad_token_id", &C::pad_token, kIds, 32000), window_field(0)};
}

NameTable phi3_names(const DecoderConfig& config, ModelHead head) {
  return decoder_names(config, head, {.queries_keys_values = {"self_attn.qkv_proj"}, .linear1 = "mlp.gate_up_proj"});
}

}  // namespace

FamilyList families_of_phi3() {
  static const DecoderFamily family("phi3", FamilyKind::kDecoder, decoder_architectures("Phi3"), phi3_kind(),
                                    phi3_fields(), make_decoder, phi3_names);
  return {&family};
}

}  // namespace linnet
