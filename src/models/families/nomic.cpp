// Nomic's BERT (Nussbaum et al. 2024): BERT's layers with rotary positions, a gate and no biases. config.json has its
// authors' keys or those of transformers, whose heads differ.
#include "models/families/encoder_family.h"

namespace linnet {
namespace {
using C = EncoderConfig;

void read_nomic_rotary(const ConfigFile& file, C& config) {
  if (file.number("rotary_emb_fraction", 1) != 1) file.fail("\"rotary_emb_fraction\" is not 1");
  if (file.has("rotary_scaling_factor")) file.fail("\"rotary_scaling_factor\" is not supported");
  config.layer_kinds.assign(
      static_cast<size_t>(config.layers), {.rotary = RotaryConfig{.theta = positive_of(file, "rotary_emb_base", 1e4)}});
}

Fields<C> nomic_fields() {
  Fields<C> all{field("vocab_size", &C::vocab_size, kSizes), field("n_positions", &C::max_seq_len, kSizes),
      field("type_vocab_size", &C::token_types, {0, kSizes.most}, 2),
      size_fields<C>({"n_embd", "n_head", "n_layer", "n_inner"}), probability("resid_pdrop", &C::dropout, 0),
      probability("attn_pdrop", &C::attention_dropout, 0, &C::dropout),
      positive("layer_norm_epsilon", &C::epsilon, 1e-12), fixed("activation_function", "swiglu"),
      {read_nomic_rotary, [](const C& config, ConfigFile& file) {
         file.set("activation_function", "swiglu"), file.set("rotary_emb_fraction", 1.0);
         file.set("rotary_emb_base", config.layer_kinds.at(0).rotary->theta);
       }}};
  for (const char* key : {"prenorm", "use_rms_norm", "causal", "parallel_block", "rotary_emb_interleaved",
           "qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"})
    all.push_back(fixed(key, false));
  return all;
}

EncoderNames nomic_names(const char* prefix) {
  return {.prefix = prefix,
      .layers = "encoder.layers.*.",
      .own = {{"bert.embedding_norm", "^emb_ln"}, {"*.self_attn.in_proj", "attn.Wqkv"},
          {"*.self_attn.out_proj", "attn.out_proj"}, {"*.norm1", "norm1"}, {"*.linear1", "mlp.fc12"},
          {"*.linear3", "mlp.fc11"}, {"*.linear2", "mlp.fc2"}, {"*.norm2", "norm2"}},
      .masked_norm = "cls.predictions.transform.layer_norm",
      .heads = {"pooler.*", "cls.*", "classifier.*"},
      .computed = {"encoder.layers.*.rotary_emb.inv_freq"}};
}
}  // namespace

FamilyList families_of_nomic() {
  using enum ModelHead;
  const C base{.activation = Activation::kSilu,
      .learned_positions = false,
      .biases = kNoBiases,
      .gated = true,
      .has_pooler = false};
  return {encoder_family({.model_type = "nomic_bert",
              .architectures = encoder_architectures("NomicBert", {kNone, kClasses}),
              .base = base,
              .fields = nomic_fields(),
              .names = nomic_names("bert.")}),
      encoder_family({.model_type = "nomic_bert",
          .architectures = encoder_architectures("NomicBert", {kNone, kTokens, kClasses, kTokenClasses}),
          .base = base,
          .fields = bert_fields({field("hidden_act", &C::activation, kActivations, Activation::kSilu),
              lengths_field(2048, 0), rotary_layers_field(1000), head_activation_field()}),
          .names = nomic_names("nomic_bert."),
          .own_key = "hidden_size"})};
}
}  // namespace linnet
