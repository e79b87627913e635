// StarCoder2 (Lozhkov et al. 2024): rotary positions and grouped queries with layer norms, biases, and a feed-forward
// without a gate.
#include "models/families/decoder_family.h"

namespace linnet {
namespace {

DecoderConfig starcoder2_kind() {
  DecoderConfig config;
  config.learned_positions = config.scaled_residual = false;
  config.rotary.emplace();
  return config;
}

Field<DecoderConfig> starcoder2_biases() {
  return {[](const ConfigFile& file, DecoderConfig& config) {
            if (!file.flag("use_bias", true)) config.biases = kNoBiases;
          },
          [](const DecoderConfig& config, ConfigFile& file) { file.set("use_bias", config.biases.attention); }};
}

Fields<DecoderConfig> starcoder2_fields() {
  using C = DecoderConfig;
  return llama_fields() + Fields<C>{field("num_key_value_heads", &C::kv_heads, kSizes, 2),
                                    field("hidden_act", &C::activation, kActivations, Activation::kGeluTanh),
                                    positive("norm_epsilon", &C::epsilon, 1e-5),
                                    probability("residual_dropout", &C::dropout, 0),
                                    probability("embedding_dropout", &C::embedding_dropout, 0, &C::dropout),
                                    field("tie_word_embeddings", &C::tied_head, true),
                                    window_field(0),
                                    starcoder2_biases()};
}

NameTable starcoder2_names(const DecoderConfig& config, ModelHead head) {
  return decoder_names(config, head, {.linear1 = "mlp.c_fc", .linear2 = "mlp.c_proj"});
}

}  // namespace

FamilyList families_of_starcoder2() {
  static const DecoderFamily family("starcoder2", FamilyKind::kDecoder, decoder_architectures("Starcoder2"),
                                    starcoder2_kind(), starcoder2_fields(), make_decoder, starcoder2_names);
  return {&family};
}

}  // namespace linnet
