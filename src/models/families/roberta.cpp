// RoBERTa (Liu et al. 2019): BERT's layers, usually one token type, positions counted from behind the padding token's
// id, other heads. XLM-RoBERTa and CamemBERT differ in vocabulary alone.
#include "models/families/encoder_family.h"

namespace linnet {
FamilyList families_of_roberta() {
  const auto family = [](const char* model_type, const char* name) {
    return encoder_family({.model_type = model_type,
        .architectures = encoder_architectures(name),
        .base = {.pooler_dropout = true},
        .fields = bert_fields({field("pad_token_id", &EncoderConfig::pad_token, kIds, 1), positions_after_padding()}),
        .names = EncoderNames{.prefix = "roberta.",
            .masked_dense = "lm_head.dense",
            .masked_norm = "lm_head.layer_norm",
            .masked_bias = "lm_head.bias",
            .masked_copies = {"lm_head.decoder.weight", "lm_head.decoder.bias"},
            .class_dense = "classifier.dense",
            .classifier = "classifier.out_proj",
            .heads = {"pooler.*", "lm_head.*", "classifier.*", "qa_outputs.*"}}});
  };
  return {family("roberta", "Roberta"), family("xlm-roberta", "XLMRoberta"), family("camembert", "Camembert")};
}
}  // namespace linnet
