// StarCoder2 (Lozhkov et al. 2024): rotary positions, grouped queries, layer norms, biases, and no gate.
#include "models/families/decoder_family.h"

namespace linnet {
FamilyList families_of_starcoder2() {
  using C = DecoderConfig;
  return {decoder_family({.model_type = "starcoder2",
      .architectures = decoder_architectures("Starcoder2"),
      .base = {.learned_positions = false, .rotary = RotaryConfig{}, .scaled_residual = false},
      .fields = llama_fields({field("num_key_value_heads", &C::kv_heads, kSizes, 2),
          field("hidden_act", &C::activation, kActivations, Activation::kGeluTanh),
          positive("norm_epsilon", &C::epsilon, 1e-5), probability("residual_dropout", &C::dropout, 0),
          probability("embedding_dropout", &C::embedding_dropout, 0, &C::dropout),
          field("tie_word_embeddings", &C::tied_head, true), window_field(0),
          biases("use_bias", {&Biases::attention, &Biases::output, &Biases::feed_forward}, true)}),
      .names = DecoderNames{.own = {{"*.linear1", "mlp.c_fc"}, {"*.linear2", "mlp.c_proj"}}}})};
}
}  // namespace linnet
