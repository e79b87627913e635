// Llama (Touvron et al. 2023), and two families of its kind: Mistral, whose positions see a window, and Qwen2, whose
// queries, keys and values have biases.
#include "models/families/decoder_family.h"

namespace linnet {
namespace {

// "attention_bias" and "mlp_bias": each of several linear layers.
Field<DecoderConfig> bias_field(const char* key, std::vector<bool Biases::*> members) {
  return {[=](const ConfigFile& file, DecoderConfig& config) {
            for (bool Biases::*member : members) config.biases.*member = file.flag(key, false);
          },
          [=](const DecoderConfig& config, ConfigFile& file) { file.set(key, config.biases.*members[0]); }};
}

DecoderConfig qwen2_kind() {
  DecoderConfig config = llama_kind({});
  config.biases.attention = true;
  return config;
}

}  // namespace

extern const DecoderFamily kLlamaFamily, kMistralFamily, kQwen2Family;

const DecoderFamily kLlamaFamily(
    "llama", FamilyKind::kDecoder, decoder_architectures("LlamaForCausalLM", "LlamaModel"), llama_kind({}),
    llama_fields() + Fields<DecoderConfig>{bias_field("attention_bias", {&Biases::attention, &Biases::output}),
                                           bias_field("mlp_bias", {&Biases::feed_forward})},
    make_decoder, llama_names);
const DecoderFamily kMistralFamily("mistral", FamilyKind::kDecoder,
                                   decoder_architectures("MistralForCausalLM", "MistralModel"), llama_kind({}),
                                   llama_fields() + Fields<DecoderConfig>{window_field(4096)}, make_decoder,
                                   llama_names);
const DecoderFamily kQwen2Family("qwen2", FamilyKind::kDecoder, decoder_architectures("Qwen2ForCausalLM", "Qwen2Model"),
                                 qwen2_kind(), llama_fields() + Fields<DecoderConfig>{no_window_field()}, make_decoder,
                                 llama_names);

}  // namespace linnet
