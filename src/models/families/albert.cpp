// ALBERT (Lan et al. 2020): BERT's layers, which share their weights, above narrower embeddings.
#include "models/families/encoder_family.h"

namespace linnet {
FamilyList families_of_albert() {
  using C = EncoderConfig;
  const auto check_groups = [](const ConfigFile& file, C& config) {
    if (config.layer_groups > config.layers) file.fail("\"num_hidden_groups\" is larger than \"num_hidden_layers\"");
    config.tagger_dropout = config.classifier_dropout;
  };
  return {encoder_family({.model_type = "albert",
      .architectures = encoder_architectures("Albert"),
      .fields = bert_fields({field("hidden_act", &C::activation, kActivations, Activation::kGeluTanh),
          probability("hidden_dropout_prob", &C::dropout, 0),
          probability("attention_probs_dropout_prob", &C::attention_dropout, 0, &C::dropout),
          probability("classifier_dropout_prob", &C::classifier_dropout, 0.1, &C::dropout), lengths_field(512, 0),
          field("embedding_size", &C::embedding_width, kWidths, 128),
          field("num_hidden_groups", &C::layer_groups, kLayers, 1),
          field("inner_group_num", &C::group_layers, kLayers, 1), {check_groups}, head_activation_field()}),
      .names = EncoderNames{.prefix = "albert.",
          .layers = "encoder.albert_layer_groups.*.albert_layers.*.",
          .own = {{"bert.projection", "^encoder.embedding_hidden_mapping_in"},
              {"*.self_attn.in_proj", "attention.query attention.key attention.value"},
              {"*.self_attn.out_proj", "attention.dense"}, {"*.norm1", "attention.LayerNorm"}, {"*.linear1", "ffn"},
              {"*.linear2", "ffn_output"}, {"*.norm2", "full_layer_layer_norm"}},
          .masked_dense = "predictions.dense",
          .masked_norm = "predictions.LayerNorm",
          .masked_bias = "predictions.bias",
          .masked_copies = {"predictions.decoder.weight", "predictions.decoder.bias"},
          .class_dense = "^pooler",
          .pooler = "^pooler",
          .heads = {"pooler.*", "predictions.*", "classifier.*", "sop_classifier.*", "qa_outputs.*"}}})};
}
}  // namespace linnet
