// Qwen3 (Yang et al. 2025): Llama's layers with norms of each head's queries and keys, a separate head size, no biases.
#include "models/families/decoder_family.h"

namespace linnet {
FamilyList families_of_qwen3() {
  using C = DecoderConfig;
  return {decoder_family({.model_type = "qwen3",
      .architectures = decoder_architectures("Qwen3"),
      .base = llama_kind({.query_key_norms = QueryKeyNorms::kHeads}),
      .fields = llama_fields(
          {field("head_dim", &C::head_size, kSizes, 128), fixed("attention_bias", false), upper_windows_field()})})};
}
}  // namespace linnet
