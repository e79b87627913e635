// DistilBERT (Sanh et al. 2019): BERT's layers without types of tokens and without a pooler.
#include "models/families/encoder_family.h"

namespace linnet {
namespace {

EncoderConfig distilbert_kind() {
  EncoderConfig config;
  config.token_types = 0, config.has_pooler = false;
  config.pooler_activation = Activation::kRelu;
  return config;
}

// The head's activation is that of the layers, in both directions.
Fields<EncoderConfig> distilbert_fields() {
  using C = EncoderConfig;
  return {field("vocab_size", &C::vocab_size, kSizes, 30522),
          field("max_position_embeddings", &C::max_seq_len, kSizes, 512),
          field("dim", &C::width, kWidths),
          field("n_heads", &C::heads, kSizes),
          multiple("dim", &C::width, "n_heads", &C::heads),
          field("n_layers", &C::layers, kLayers),
          field("hidden_dim", &C::hidden, kSizes),
          probability("dropout", &C::dropout, 0.1),
          probability("attention_dropout", &C::attention_dropout, 0.1, &C::dropout),
          probability("seq_classif_dropout", &C::classifier_dropout, 0.2, &C::dropout),
          field("activation", &C::activation, kActivations, Activation::kGelu),
          field("pad_token_id", &C::pad_token, kIds, 0),
          {[](const ConfigFile&, C& config) { config.head_activation = config.activation; }}};
}

NameTable distilbert_names(const EncoderConfig& config, ModelHead head) {
  return encoder_names(config, head,
                       {.prefix = "distilbert.",
                        .layers = "transformer.layer.",
                        .queries_keys_values = {"attention.q_lin", "attention.k_lin", "attention.v_lin"},
                        .output = "attention.out_lin",
                        .norm1 = "sa_layer_norm",
                        .linear1 = "ffn.lin1",
                        .linear2 = "ffn.lin2",
                        .norm2 = "output_layer_norm",
                        .masked_dense = "vocab_transform",
                        .masked_norm = "vocab_layer_norm",
                        .masked_bias = "vocab_projector.bias",
                        .masked_copies = {"vocab_projector.weight"},
                        .class_dense = "pre_classifier",
                        .heads = {"vocab_*", "pre_classifier.*", "classifier.*", "qa_outputs.*"}});
}

}  // namespace

FamilyList families_of_distilbert() {
  static const EncoderFamily family("distilbert", FamilyKind::kEncoder, encoder_architectures("DistilBert"),
                                    distilbert_kind(), distilbert_fields(), make_encoder, distilbert_names);
  return {&family};
}

}  // namespace linnet
