// DistilBERT (Sanh et al. 2019): BERT's layers without token types and pooler.
#include "models/families/encoder_family.h"

namespace linnet {
FamilyList families_of_distilbert() {
  using C = EncoderConfig;
  return {encoder_family({.model_type = "distilbert",
      .architectures = encoder_architectures("DistilBert"),
      .base = {.token_types = 0, .has_pooler = false, .pooler_activation = Activation::kRelu},
      .fields = {field("vocab_size", &C::vocab_size, kSizes, 30522), lengths_field(512, 0),
          size_fields<C>({"dim", "n_heads", "n_layers", "hidden_dim"}), probability("dropout", &C::dropout, 0.1),
          probability("attention_dropout", &C::attention_dropout, 0.1, &C::dropout),
          probability("seq_classif_dropout", &C::classifier_dropout, 0.2, &C::dropout),
          field("activation", &C::activation, kActivations, Activation::kGelu), head_activation_field()},
      .names = EncoderNames{.prefix = "distilbert.",
          .layers = "transformer.layer.*.",
          .own = {{"*.self_attn.in_proj", "attention.q_lin attention.k_lin attention.v_lin"},
              {"*.self_attn.out_proj", "attention.out_lin"}, {"*.norm1", "sa_layer_norm"}, {"*.linear1", "ffn.lin1"},
              {"*.linear2", "ffn.lin2"}, {"*.norm2", "output_layer_norm"}},
          .masked_dense = "vocab_transform",
          .masked_norm = "vocab_layer_norm",
          .masked_bias = "vocab_projector.bias",
          .masked_copies = {"vocab_projector.weight"},
          .class_dense = "pre_classifier",
          .heads = {"vocab_*", "pre_classifier.*", "classifier.*", "qa_outputs.*"}}})};
}
}  // namespace linnet
