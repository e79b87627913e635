// BERT (Devlin et al. 2019).
#include "models/families/encoder_family.h"

namespace linnet {
FamilyList families_of_bert() {
  using C = EncoderConfig;
  return {encoder_family({.model_type = "bert",
      .architectures = encoder_architectures("Bert"),
      .fields = bert_fields({field("max_position_embeddings", &C::max_seq_len, kSizes),
          field("pad_token_id", &C::pad_token, kIds, -1), head_activation_field()}),
      .names = EncoderNames{.prefix = "bert.",
          .heads = {"qa_outputs.*", "cls.*", "pooler.*", "classifier.*"},
          .old_endings = {{"LayerNorm.gamma", "LayerNorm.weight"}, {"LayerNorm.beta", "LayerNorm.bias"}}}})};
}
}  // namespace linnet
