// GPT-NeoX and Pythia (Black et al. 2022, Biderman et al. 2023): parallel attention and feed-forward, layer norms,
// biases; a quarter of each head turns. Queries, keys and values are one tensor, head by head.
#include "models/families/decoder_family.h"

namespace linnet {
FamilyList families_of_gpt_neox() {
  using C = DecoderConfig;
  using enum TensorForm;
  return {decoder_family({.model_type = "gpt_neox",
      .architectures = decoder_architectures("GPTNeoX"),
      .base = {.learned_positions = false, .rotary = RotaryConfig{}, .tied_head = false, .scaled_residual = false},
      .fields =
          llama_fields({field("hidden_act", &C::activation, kActivations, Activation::kGelu),
                           positive("layer_norm_eps", &C::epsilon, 1e-5), probability("hidden_dropout", &C::dropout, 0),
                           field("use_parallel_residual", &C::parallel, true),
                           biases("attention_bias", {&Biases::attention, &Biases::output}, true)},
              {.theta = "rotary_emb_base", .share = "rotary_pct", .standard_share = 0.25}),
      .names = DecoderNames{.prefix = "gpt_neox.",
          .own = {{"tokens", "^embed_in"}, {"*.self_attn.in_proj", "attention.query_key_value", kByHeads},
              {"*.self_attn.out_proj", "attention.dense"}, {"*.linear1", "mlp.dense_h_to_4h"},
              {"*.linear2", "mlp.dense_4h_to_h"}, {"norm", "^final_layer_norm"},
              {"head", "embed_out.weight", kSame, TensorRole::kHead},
              {"tokens.weight", "embed_out.weight", kSame, TensorRole::kCopy}},
          .computed = {"layers.*.attention.bias", "layers.*.attention.masked_bias",
              "layers.*.attention.rotary_emb.inv_freq"},
          .old_beginnings = {{"lm_head.", "embed_out."}}}})};  // transformers 5's name, which adapters have
}
}  // namespace linnet
