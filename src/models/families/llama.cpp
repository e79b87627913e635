// Llama (Touvron et al. 2023), and two families of its kind: Mistral, whose positions see a window, and Qwen2, whose
// queries, keys and values have biases.
#include "models/families/decoder_family.h"

namespace linnet {
namespace {

DecoderConfig qwen2_kind() {
  DecoderConfig config = llama_kind({});
  config.biases.attention = true;
  return config;
}

}  // namespace

FamilyList families_of_llama() {
  using Rows = Fields<DecoderConfig>;
  std::vector<Architecture> llamas = decoder_architectures("Llama");
  llamas.push_back({"LLaMAForCausalLM", ModelHead::kTokens});  // as the first conversions spelt it
  static const DecoderFamily llama("llama", FamilyKind::kDecoder, llamas, llama_kind({}),
                                   llama_fields() + bias_fields(), make_decoder, llama_names);
  static const DecoderFamily mistral("mistral", FamilyKind::kDecoder, decoder_architectures("Mistral"), llama_kind({}),
                                     llama_fields() + Rows{window_field(4096)}, make_decoder, llama_names);
  static const DecoderFamily qwen2("qwen2", FamilyKind::kDecoder, decoder_architectures("Qwen2"), qwen2_kind(),
                                   llama_fields() + Rows{upper_windows_field()}, make_decoder, llama_names);
  return {&llama, &mistral, &qwen2};
}

}  // namespace linnet
