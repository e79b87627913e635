// ALBERT (Lan et al. 2020): BERT's layers, which share their weights, above narrower embeddings.
#include "models/families/encoder_family.h"

namespace linnet {
namespace {

Fields<EncoderConfig> albert_fields() {
  using C = EncoderConfig;
  return bert_fields() + Fields<C>{field("hidden_act", &C::activation, kActivations, Activation::kGeluTanh),
                                   probability("hidden_dropout_prob", &C::dropout, 0),
                                   probability("attention_probs_dropout_prob", &C::attention_dropout, 0, &C::dropout),
                                   probability("classifier_dropout_prob", &C::classifier_dropout, 0.1, &C::dropout),
                                   field("max_position_embeddings", &C::max_seq_len, kSizes, 512),
                                   field("pad_token_id", &C::pad_token, kIds, 0),
                                   field("embedding_size", &C::embedding_width, kWidths, 128),
                                   field("num_hidden_groups", &C::layer_groups, kLayers, 1),
                                   field("inner_group_num", &C::group_layers, kLayers, 1),
                                   {[](const ConfigFile& file, C& config) {
                                     if (config.layer_groups > config.layers)
                                       file.fail("\"num_hidden_groups\" is larger than \"num_hidden_layers\"");
                                     config.head_activation = config.activation,
                                     config.tagger_dropout = config.classifier_dropout;
                                   }}};
}

NameTable albert_names(const EncoderConfig& config, ModelHead head) {
  return encoder_names(config, head,
                       {.prefix = "albert.",
                        .projection = "encoder.embedding_hidden_mapping_in",
                        .layers = "encoder.albert_layer_groups.",
                        .queries_keys_values = {"attention.query", "attention.key", "attention.value"},
                        .output = "attention.dense",
                        .norm1 = "attention.LayerNorm",
                        .linear1 = "ffn",
                        .linear2 = "ffn_output",
                        .norm2 = "full_layer_layer_norm",
                        .masked_dense = "predictions.dense",
                        .masked_norm = "predictions.LayerNorm",
                        .masked_bias = "predictions.bias",
                        .masked_copies = {"predictions.decoder.weight", "predictions.decoder.bias"},
                        .class_dense = "pooler",
                        .pooler = "pooler",
                        .prefixed_class_dense = true,
                        .heads = {"pooler.*", "predictions.*", "classifier.*", "sop_classifier.*", "qa_outputs.*"}});
}

}  // namespace

FamilyList families_of_albert() {
  static const EncoderFamily family("albert", FamilyKind::kEncoder, encoder_architectures("Albert"), EncoderConfig{},
                                    albert_fields(), make_encoder, albert_names);
  return {&family};
}

}  // namespace linnet
