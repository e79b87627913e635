// MPNet (Song et al. 2020): RoBERTa's layers with a bias of scores by distance, which all layers share, and no types of
// tokens.
#include "models/families/encoder_family.h"

namespace linnet {
namespace {

EncoderConfig mpnet_kind() {
  EncoderConfig config;
  config.token_types = 0, config.pooler_dropout = true;
  return config;
}

// The padding token is 1 in all of them, whatever config.json says.
Fields<EncoderConfig> mpnet_fields() {
  using C = EncoderConfig;
  return bert_fields() + Fields<C>{{[](const ConfigFile&, C& config) { config.token_types = 0, config.pad_token = 1; }},
                                   positions_after_padding(),
                                   field("relative_attention_num_buckets", &C::distance_buckets, kSizes, 32),
                                   {[](const ConfigFile& file, C& config) {
                                     if (config.distance_buckets != 32)
                                       file.fail("\"relative_attention_num_buckets\" is not 32");
                                   }}};
}

NameTable mpnet_names(const EncoderConfig& config, ModelHead head) {
  return encoder_names(config, head,
                       {.prefix = "mpnet.",
                        .distance_bias = "encoder.relative_attention_bias",
                        .queries_keys_values = {"attention.attn.q", "attention.attn.k", "attention.attn.v"},
                        .output = "attention.attn.o",
                        .norm1 = "attention.LayerNorm",
                        .masked_dense = "lm_head.dense",
                        .masked_norm = "lm_head.layer_norm",
                        .masked_bias = "lm_head.bias",
                        .masked_copies = {"lm_head.decoder.weight", "lm_head.decoder.bias"},
                        .class_dense = "classifier.dense",
                        .classifier = "classifier.out_proj",
                        .heads = {"pooler.*", "lm_head.*", "classifier.*"}});
}

}  // namespace

FamilyList families_of_mpnet() {
  static const EncoderFamily family("mpnet", FamilyKind::kEncoder, encoder_architectures("MPNet"), mpnet_kind(),
                                    mpnet_fields(), make_encoder, mpnet_names);
  return {&family};
}

}  // namespace linnet
