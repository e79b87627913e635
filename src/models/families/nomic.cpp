// Nomic's BERT (Nussbaum et al. 2024): BERT's layers with rotary positions, a gate and no biases. config.json has the
// keys of its authors' program, or those of transformers, which has heads of its own.
#include "models/families/encoder_family.h"

namespace linnet {
namespace {

using C = EncoderConfig;

C nomic_kind() {
  C config;
  config.learned_positions = config.has_pooler = false;
  config.gated = true, config.biases = kNoBiases, config.activation = Activation::kSilu;
  return config;
}

void read_nomic_rotary(const ConfigFile& file, C& config) {
  if (file.number("rotary_emb_fraction", 1) != 1) file.fail("\"rotary_emb_fraction\" is not 1");
  if (file.has("rotary_scaling_factor")) file.fail("\"rotary_scaling_factor\" is not supported");
  config.layer_kinds.assign(static_cast<size_t>(config.layers),
                            {.rotary = RotaryConfig{.theta = positive_of(file, "rotary_emb_base", 1e4)}});
}

Fields<C> nomic_fields() {
  Fields<C> all{field("vocab_size", &C::vocab_size, kSizes),
                field("n_positions", &C::max_seq_len, kSizes),
                field("type_vocab_size", &C::token_types, {0, kSizes.most}, 2),
                field("n_embd", &C::width, kWidths),
                field("n_head", &C::heads, kSizes),
                multiple("n_embd", &C::width, "n_head", &C::heads),
                field("n_layer", &C::layers, kLayers),
                field("n_inner", &C::hidden, kSizes),
                probability("resid_pdrop", &C::dropout, 0),
                probability("attn_pdrop", &C::attention_dropout, 0, &C::dropout),
                positive("layer_norm_epsilon", &C::epsilon, 1e-12),
                fixed("activation_function", "swiglu"),
                {read_nomic_rotary, [](const C& config, ConfigFile& file) {
                   file.set("activation_function", "swiglu"), file.set("rotary_emb_fraction", 1.0);
                   file.set("rotary_emb_base", config.layer_kinds.at(0).rotary->theta);
                 }}};
  for (const char* key : {"prenorm", "use_rms_norm", "causal", "parallel_block", "rotary_emb_interleaved",
                          "qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"})
    all.push_back(fixed(key, false));
  return all;
}

Fields<C> nomic_transformers_fields() {
  return bert_fields() + Fields<C>{field("max_position_embeddings", &C::max_seq_len, kSizes, 2048),
                                   field("pad_token_id", &C::pad_token, kIds, 0),
                                   rotary_layers_field(1000),
                                   {[](const ConfigFile&, C& config) { config.head_activation = config.activation; }}};
}

NameTable nomic_names_with(const char* prefix, const C& config, ModelHead head) {
  return encoder_names(config, head,
                       {.prefix = prefix,
                        .embedding_norm = "emb_ln",
                        .layers = "encoder.layers.",
                        .queries_keys_values = {"attn.Wqkv"},
                        .linear3 = "mlp.fc11",
                        .output = "attn.out_proj",
                        .norm1 = "norm1",
                        .linear1 = "mlp.fc12",
                        .linear2 = "mlp.fc2",
                        .norm2 = "norm2",
                        .masked_norm = "cls.predictions.transform.layer_norm",
                        .prefixed_class_dense = true,
                        .heads = {"pooler.*", "cls.*", "classifier.*"},
                        .computed = {"encoder.layers.*.rotary_emb.inv_freq"}});
}

NameTable nomic_names(const C& config, ModelHead head) { return nomic_names_with("bert.", config, head); }
NameTable nomic_transformers_names(const C& config, ModelHead head) {
  return nomic_names_with("nomic_bert.", config, head);
}

}  // namespace

FamilyList families_of_nomic() {
  static const EncoderFamily family(
      "nomic_bert", FamilyKind::kEncoder,
      {{"NomicBertModel", ModelHead::kNone}, {"NomicBertForSequenceClassification", ModelHead::kClasses}}, nomic_kind(),
      nomic_fields(), make_encoder, nomic_names);
  static const EncoderFamily of_transformers = [] {
    EncoderFamily family("nomic_bert", FamilyKind::kEncoder,
                         {{"NomicBertModel", ModelHead::kNone},
                          {"NomicBertForMaskedLM", ModelHead::kTokens},
                          {"NomicBertForSequenceClassification", ModelHead::kClasses},
                          {"NomicBertForTokenClassification", ModelHead::kTokenClasses}},
                         nomic_kind(), nomic_transformers_fields(), make_encoder, nomic_transformers_names);
    family.own_key = "hidden_size";
    return family;
  }();
  return {&family, &of_transformers};
}

}  // namespace linnet
