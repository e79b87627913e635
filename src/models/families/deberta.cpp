// DeBERTa-v2, v3 (He et al. 2021, 2023): BERT's layers with disentangled attention and shared distance embeddings.
#include "base/text.h"
#include "models/families/encoder_family.h"

namespace linnet {
namespace {
using C = EncoderConfig;

// "p2c|c2p", or a list of both.
void check_scores(const ConfigFile& file) {
  constexpr const char* kKey = "pos_att_type";
  const std::string text = file.is_text(kKey) ? file.text(kKey) : joined(file.texts(kKey), "|");
  if (text != "p2c|c2p" && text != "c2p|p2c") file.fail("\"pos_att_type\" is not \"p2c|c2p\"");
}

void read_distances(const ConfigFile& file, C& config) {
  for (const char* key : {"relative_attention", "share_att_key"})
    if (!file.flag(key, false)) file.fail("\"", key, "\" is false, Linnet supports only true");
  check_scores(file);
  if (file.integer("conv_groups", 1) != 1) file.fail("\"conv_groups\" is not 1");
  if (file.number("pooler_dropout", 0) != 0) file.fail("\"pooler_dropout\" is not 0");
  if (file.size("embedding_size", config.width) != config.width) file.fail("\"embedding_size\" is not \"hidden_size\"");
  const int64_t most = file.integer("max_relative_positions", -1);
  config.max_distance = most < 1 ? config.max_seq_len : most;
  config.distance_span_buckets = std::max<int64_t>(0, file.integer("position_buckets", -1));
  config.distance_span = config.distance_span_buckets > 0 ? config.distance_span_buckets : config.max_distance;
  const std::string norm = file.text("norm_rel_ebd", "none");
  if (norm != "none" && norm != "layer_norm") file.fail("\"norm_rel_ebd\" is \"", norm, "\"");
  config.distance_norm = norm == "layer_norm";
  if (file.has("cls_dropout")) config.classifier_dropout = probability_of(file, "cls_dropout", 0);
}

void write_distances(const C& config, ConfigFile& file) {
  for (const char* key : {"relative_attention", "share_att_key"}) file.set(key, true);
  file.set("pos_att_type", std::vector<std::string>{"p2c", "c2p"});
  file.set("max_relative_positions", config.max_distance);
  file.set("position_buckets", config.distance_span_buckets > 0 ? config.distance_span_buckets : -1);
  file.set("norm_rel_ebd", config.distance_norm ? "layer_norm" : "none");
}
}  // namespace

FamilyList families_of_deberta() {
  return {encoder_family({.model_type = "deberta-v2",
      .architectures = encoder_architectures("DebertaV2"),
      .base = {.has_pooler = false, .pooler_activation = Activation::kGelu},
      .fields = bert_fields({field("type_vocab_size", &C::token_types, {0, kSizes.most}, 0), lengths_field(512, 0),
          field("position_biased_input", &C::learned_positions, true),
          field("conv_kernel_size", &C::convolution, {0, 99}, 0),
          field("conv_act", &C::convolution_activation, kActivations, Activation::kTanh),
          field("pooler_hidden_act", &C::pooler_activation, kActivations, Activation::kGelu),
          {read_distances, write_distances}, head_activation_field()}),
      .names = EncoderNames{.prefix = "deberta.",
          .own = {{"bert.distances", "^encoder.rel_embeddings"}, {"bert.distance_norm", "^encoder.LayerNorm"},
              {"bert.convolution", "^encoder.conv.conv"}, {"bert.convolution.norm", "^encoder.conv.LayerNorm"},
              {"*.self_attn.in_proj", "attention.self.query_proj attention.self.key_proj attention.self.value_proj"}},
          .class_dense = "pooler.dense",
          .heads = {"pooler.*", "cls.*", "lm_predictions.*", "mask_predictions.*", "classifier.*", "qa_outputs.*"}}})};
}
}  // namespace linnet
