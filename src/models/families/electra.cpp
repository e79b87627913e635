// ELECTRA (Clark et al. 2020): BERT's layers without a pooler, maybe with narrower embeddings. The published
// discriminator (ElectraForPreTraining) is read without its head.
#include "models/families/encoder_family.h"

namespace linnet {
FamilyList families_of_electra() {
  using C = EncoderConfig;
  std::vector<Architecture> architectures = encoder_architectures("Electra");
  architectures.push_back({"ElectraForPreTraining", ModelHead::kNone});
  return {encoder_family({.model_type = "electra",
      .architectures = architectures,
      // The masked head uses this activation too, whatever that of the layers is.
      .base = {.has_pooler = false, .pooler_dropout = true, .pooler_activation = Activation::kGelu},
      .fields = bert_fields({lengths_field(512, 0),
          other_width("embedding_size", &C::embedding_width, &C::width, [](const C&) { return 128; })}),
      .names = EncoderNames{.prefix = "electra.",
          .own = {{"bert.projection", "^embeddings_project"}},
          .masked_dense = "generator_predictions.dense",
          .masked_norm = "generator_predictions.LayerNorm",
          .masked_bias = "generator_lm_head.bias",
          .masked_copies = {"generator_lm_head.weight"},
          .class_dense = "classifier.dense",
          .classifier = "classifier.out_proj",
          .heads = {"generator_*", "discriminator_predictions.*", "classifier.*", "qa_outputs.*"}}})};
}
}  // namespace linnet
