// GTE (Zhang et al. 2024), whose folders call it "new": BERT's layers with rotary positions and a gate. transformers
// calls it "gte" and has other keys in config.json.
#include <cmath>
#include "models/families/encoder_family.h"

namespace linnet {
namespace {

using C = EncoderConfig;

C gte_kind() {
  C config;
  config.learned_positions = config.has_pooler = false;
  config.fused_gate = config.gate_second = true;
  config.biases.feed_forward = false, config.biases.last = true;
  return config;
}

// "ntk" divides all frequencies by factor^(2 / size) and takes a larger theta.
void read_rotary(const ConfigFile& file, C& config) {
  RotaryConfig rotary{.theta = positive_of(file, "rope_theta", 1e4)};
  if (file.has("rope_scaling")) {
    const ConfigFile scaling = file.object("rope_scaling");
    scaling.choice("type", {"ntk"});
    const double factor = positive_of(scaling, "factor", 1);
    rotary.theta *= factor;
    rotary.scaling = {
        .kind = RopeScaling::Kind::kLinear,
        .factor = std::pow(factor, 2 * static_cast<double>(config.heads) / static_cast<double>(config.width))};
  }
  config.layer_kinds.assign(static_cast<size_t>(config.layers), {.rotary = rotary});
}

Fields<C> gte_fields() {
  return bert_fields("rope") + Fields<C>{field("type_vocab_size", &C::token_types, {0, kSizes.most}, 1),
                                         field("max_position_embeddings", &C::max_seq_len, kSizes, 2048),
                                         field("pad_token_id", &C::pad_token, kIds, 0),
                                         fixed("layer_norm_type", "layer_norm"),
                                         fixed("pack_qkv", true),
                                         fixed("logn_attention_scale", false),
                                         {read_rotary}};
}

Fields<C> gte_transformers_fields() {
  return bert_fields() + Fields<C>{field("type_vocab_size", &C::token_types, {0, kSizes.most}, 1),
                                   field("max_position_embeddings", &C::max_seq_len, kSizes, 8192),
                                   field("pad_token_id", &C::pad_token, kIds, 1), rotary_layers_field(160000)};
}

NameTable gte_names_with(const char* prefix, const C& config, ModelHead head) {
  return encoder_names(config, head,
                       {.prefix = prefix,
                        .queries_keys_values = {"attention.qkv_proj"},
                        .output = "attention.o_proj",
                        .norm1 = "attn_ln",
                        .linear1 = "mlp.up_gate_proj",
                        .linear2 = "mlp.down_proj",
                        .norm2 = "mlp_ln",
                        .masked_dense = "lm_head.dense",
                        .masked_norm = "lm_head.norm",
                        .masked_bias = "lm_head.decoder.bias",
                        .masked_copies = {"lm_head.decoder.weight"},
                        .prefixed_class_dense = true,
                        .heads = {"pooler.*", "lm_head.*", "classifier.*"}});
}

NameTable gte_names(const C& config, ModelHead head) { return gte_names_with("new.", config, head); }
NameTable gte_transformers_names(const C& config, ModelHead head) { return gte_names_with("gte.", config, head); }

}  // namespace

FamilyList families_of_gte() {
  static const EncoderFamily family(
      "new", FamilyKind::kEncoder,
      {{"NewModel", ModelHead::kNone}, {"NewForSequenceClassification", ModelHead::kClasses}}, gte_kind(), gte_fields(),
      make_encoder, gte_names);
  static const EncoderFamily of_transformers("gte", FamilyKind::kEncoder,
                                             {{"GteModel", ModelHead::kNone},
                                              {"GteForMaskedLM", ModelHead::kTokens},
                                              {"GteForSequenceClassification", ModelHead::kClasses},
                                              {"GteForTokenClassification", ModelHead::kTokenClasses}},
                                             gte_kind(), gte_transformers_fields(), make_encoder,
                                             gte_transformers_names);
  return {&family, &of_transformers};
}

}  // namespace linnet
