// GPT-NeoX and Pythia (Black et al. 2022, Biderman et al. 2023): attention and feed-forward beside each other, layer
// norms, biases, and a quarter of each head turns. Queries, keys and values are one tensor, head by head.
#include "models/families/decoder_family.h"

namespace linnet {
namespace {

DecoderConfig neox_kind() {
  DecoderConfig config;
  config.learned_positions = config.scaled_residual = config.tied_head = false;
  config.rotary.emplace();
  return config;
}

Field<DecoderConfig> gpt_neox_biases() {
  return {[](const ConfigFile& file, DecoderConfig& config) {
            config.biases.attention = config.biases.output = file.flag("attention_bias", true);
          },
          [](const DecoderConfig& config, ConfigFile& file) { file.set("attention_bias", config.biases.attention); }};
}

Fields<DecoderConfig> gpt_neox_fields() {
  using C = DecoderConfig;
  return llama_fields() +
         Fields<C>{field("hidden_act", &C::activation, kActivations, Activation::kGelu),
                   positive("layer_norm_eps", &C::epsilon, 1e-5),
                   rotary_field({.theta = "rotary_emb_base", .share = "rotary_pct", .standard_share = 0.25}),
                   whole_pairs_field(),
                   probability("hidden_dropout", &C::dropout, 0),
                   field("use_parallel_residual", &C::parallel, true),
                   gpt_neox_biases()};
}

NameTable gpt_neox_names(const DecoderConfig& config, ModelHead head) {
  return decoder_names(config, head,
                       {.prefix = "gpt_neox.",
                        .tokens = "embed_in",
                        .final_norm = "final_layer_norm",
                        .head = "embed_out",
                        .queries_keys_values = {"attention.query_key_value"},
                        .output = "attention.dense",
                        .by_heads = true,
                        .linear1 = "mlp.dense_h_to_4h",
                        .linear2 = "mlp.dense_4h_to_h",
                        .computed = {"layers.*.attention.bias", "layers.*.attention.masked_bias",
                                     "layers.*.attention.rotary_emb.inv_freq"}});
}

}  // namespace

FamilyList families_of_gpt_neox() {
  static const DecoderFamily family("gpt_neox", FamilyKind::kDecoder, decoder_architectures("GPTNeoX"), neox_kind(),
                                    gpt_neox_fields(), make_decoder, gpt_neox_names);
  return {&family};
}

}  // namespace linnet
