// Qwen3 (Yang et al. 2025): Llama's layers with a norm of each head's queries and keys, heads of their own size, and no
// biases.
#include "models/families/decoder_family.h"

namespace linnet {
namespace {

DecoderConfig qwen3_kind() {
  DecoderConfig config = llama_kind({});
  config.query_key_norms = QueryKeyNorms::kHeads;
  return config;
}

Fields<DecoderConfig> qwen3_fields() {
  return llama_fields() + Fields<DecoderConfig>{field("head_dim", &DecoderConfig::head_size, kSizes, 128),
                                                fixed("attention_bias", false), upper_windows_field()};
}

}  // namespace

FamilyList families_of_qwen3() {
  static const DecoderFamily family("qwen3", FamilyKind::kDecoder, decoder_architectures("Qwen3"), qwen3_kind(),
                                    qwen3_fields(), make_decoder, llama_names);
  return {&family};
}

}  // namespace linnet
