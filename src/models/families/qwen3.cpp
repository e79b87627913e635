// Qwen3 (Yang et al. 2025): Llama's layers with a norm of each head's queries and keys, heads of their own size, and no
// biases.
#include "models/families/decoder_family.h"

namespace linnet {
namespace {

DecoderConfig qwen3_kind() {
  DecoderConfig config = llama_kind({});
  config.head_norms = true;
  return config;
}

Fields<DecoderConfig> fields() {
  return llama_fields() + Fields<DecoderConfig>{field("head_dim", &DecoderConfig::head_size, kSizes, 128),
                                                fixed("attention_bias", false), no_window_field()};
}

}  // namespace

extern const DecoderFamily kQwen3Family;
const DecoderFamily kQwen3Family("qwen3", FamilyKind::kDecoder, decoder_architectures("Qwen3ForCausalLM", "Qwen3Model"),
                                 qwen3_kind(), fields(), make_decoder, llama_names);

}  // namespace linnet
