// Jina's BERT (Günther et al. 2023): BERT's layers with a gate, and in place of positions a bias that falls with the
// distance. Its folders say that they are "bert"; the architecture tells them apart. Its authors' program is not part
// of transformers.
#include "models/families/encoder_family.h"

namespace linnet {
namespace {

using C = EncoderConfig;

C jina_kind() {
  C config;
  config.learned_positions = false, config.linear_biases = config.fused_gate = true;
  config.biases.feed_forward = false, config.biases.last = true;
  return config;
}

Fields<C> jina_fields() {
  return bert_fields("alibi") +
         Fields<C>{field("max_position_embeddings", &C::max_seq_len, kSizes, 8192),
                   field("pad_token_id", &C::pad_token, kIds, 0), fixed("feed_forward_type", "geglu"),
                   written("position_embedding_type", "alibi"), written("feed_forward_type", "geglu")};
}

NameTable jina_names(const C& config, ModelHead head) {
  return encoder_names(config, head,
                       {.prefix = "bert.",
                        .linear1 = "mlp.gated_layers",
                        .linear2 = "mlp.wo",
                        .norm2 = "mlp.layernorm",
                        .prefixed_class_dense = true,
                        .heads = {"pooler.*", "cls.*", "classifier.*", "qa_outputs.*"}});
}

}  // namespace

FamilyList families_of_jina() {
  static const EncoderFamily family("bert", FamilyKind::kEncoder, encoder_architectures("JinaBert"), jina_kind(),
                                    jina_fields(), make_encoder, jina_names);
  return {&family};
}

}  // namespace linnet
