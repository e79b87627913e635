// RoBERTa (Liu et al. 2019): BERT's layers, usually with one type of tokens; positions that are counted from behind the
// padding token's id; other heads. XLM-RoBERTa and CamemBERT are the same with other vocabularies.
#include "models/families/encoder_family.h"

namespace linnet {
namespace {

NameTable roberta_names(const EncoderConfig& config, ModelHead head) {
  return encoder_names(config, head,
                       {.prefix = "roberta.",
                        .masked_dense = "lm_head.dense",
                        .masked_norm = "lm_head.layer_norm",
                        .masked_bias = "lm_head.bias",
                        .masked_copies = {"lm_head.decoder.weight", "lm_head.decoder.bias"},
                        .class_dense = "classifier.dense",
                        .classifier = "classifier.out_proj",
                        .heads = {"pooler.*", "lm_head.*", "classifier.*", "qa_outputs.*"}});
}

EncoderConfig roberta_kind() {
  EncoderConfig config;
  config.pooler_dropout = true;
  return config;
}

Fields<EncoderConfig> roberta_fields() {
  return bert_fields() +
         Fields<EncoderConfig>{field("pad_token_id", &EncoderConfig::pad_token, kIds, 1), positions_after_padding()};
}

}  // namespace

FamilyList families_of_roberta() {
  static const EncoderFamily roberta("roberta", FamilyKind::kEncoder, encoder_architectures("Roberta"), roberta_kind(),
                                     roberta_fields(), make_encoder, roberta_names);
  static const EncoderFamily xlm("xlm-roberta", FamilyKind::kEncoder, encoder_architectures("XLMRoberta"),
                                 roberta_kind(), roberta_fields(), make_encoder, roberta_names);
  static const EncoderFamily camembert("camembert", FamilyKind::kEncoder, encoder_architectures("Camembert"),
                                       roberta_kind(), roberta_fields(), make_encoder, roberta_names);
  return {&roberta, &xlm, &camembert};
}

}  // namespace linnet
