// Llama (Touvron et al. 2023); Mistral, with a window; Qwen2, with biases of queries, keys and values.
#include "models/families/decoder_family.h"

namespace linnet {
FamilyList families_of_llama() {
  std::vector<Architecture> llamas = decoder_architectures("Llama");
  llamas.push_back({"LLaMAForCausalLM", ModelHead::kTokens});  // as the first conversions spelt it
  DecoderConfig qwen2 = llama_kind({});
  qwen2.biases.attention = true;
  return {decoder_family({.model_type = "llama",
              .architectures = llamas,
              .base = llama_kind({}),
              .fields = llama_fields({bias_fields()})}),
      decoder_family({.model_type = "mistral",
          .architectures = decoder_architectures("Mistral"),
          .base = llama_kind({}),
          .fields = llama_fields({window_field(4096)})}),
      decoder_family({.model_type = "qwen2",
          .architectures = decoder_architectures("Qwen2"),
          .base = qwen2,
          .fields = llama_fields({upper_windows_field()})})};
}
}  // namespace linnet
