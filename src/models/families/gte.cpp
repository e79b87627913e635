// GTE (Zhang et al. 2024): BERT's layers with rotary positions and a gate. "new" in its folders, "gte" in transformers.
#include "models/families/encoder_family.h"

namespace linnet {
namespace {
using C = EncoderConfig;

// "ntk" divides all frequencies by factor^(2 / size) and takes a larger theta.
void read_ntk(const ConfigFile& file, C& config) {
  RotaryConfig rotary{.theta = positive_of(file, "rope_theta", 1e4)};
  if (file.has("rope_scaling")) {
    const ConfigFile scaling = file.object("rope_scaling");
    scaling.choice("type", {"ntk"});
    const double factor = positive_of(scaling, "factor", 1);
    rotary.theta *= factor;
    rotary.scaling = {.kind = RopeScaling::Kind::kLinear,
        .factor = std::pow(factor, 2 * static_cast<double>(config.heads) / static_cast<double>(config.width))};
  }
  config.layer_kinds.assign(static_cast<size_t>(config.layers), {.rotary = rotary});
}

EncoderNames gte_names(const char* prefix) {
  return {.prefix = prefix,
      .own = {{"*.self_attn.in_proj", "attention.qkv_proj"}, {"*.self_attn.out_proj", "attention.o_proj"},
          {"*.norm1", "attn_ln"}, {"*.linear1", "mlp.up_gate_proj"}, {"*.linear2", "mlp.down_proj"},
          {"*.norm2", "mlp_ln"}},
      .masked_dense = "lm_head.dense",
      .masked_norm = "lm_head.norm",
      .masked_bias = "lm_head.decoder.bias",
      .masked_copies = {"lm_head.decoder.weight"},
      .heads = {"pooler.*", "lm_head.*", "classifier.*"}};
}
}  // namespace

FamilyList families_of_gte() {
  using enum ModelHead;
  const C base{.learned_positions = false,
      .biases = {.feed_forward = false, .last = true},
      .fused_gate = true,
      .gate_second = true,
      .has_pooler = false};
  const Field<C> one_type = field("type_vocab_size", &C::token_types, {0, kSizes.most}, 1);
  return {encoder_family({.model_type = "new",
              .architectures = encoder_architectures("New", {kNone, kClasses}),
              .base = base,
              .fields = bert_fields({one_type, lengths_field(2048, 0), fixed("layer_norm_type", "layer_norm"),
                                        fixed("pack_qkv", true), fixed("logn_attention_scale", false), {read_ntk}},
                  "rope"),
              .names = gte_names("new.")}),
      encoder_family({.model_type = "gte",
          .architectures = encoder_architectures("Gte", {kNone, kTokens, kClasses, kTokenClasses}),
          .base = base,
          .fields = bert_fields({one_type, lengths_field(8192, 1), rotary_layers_field(160000)}),
          .names = gte_names("gte.")})};
}
}  // namespace linnet
