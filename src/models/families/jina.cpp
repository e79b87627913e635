// Jina's BERT (Günther et al. 2023): BERT's layers with a gate, and score biases that fall with the distance instead of
// positions. Folders say "bert"; only the architecture differs. transformers does not include it.
#include "models/families/encoder_family.h"

namespace linnet {
FamilyList families_of_jina() {
  return {encoder_family({.model_type = "bert",
      .architectures = encoder_architectures("JinaBert"),
      .base = {.learned_positions = false,
          .linear_biases = true,
          .biases = {.feed_forward = false, .last = true},
          .fused_gate = true},
      .fields = bert_fields({lengths_field(8192, 0), fixed("feed_forward_type", "geglu"),
                                written("position_embedding_type", "alibi"), written("feed_forward_type", "geglu")},
          "alibi"),
      .names = EncoderNames{.prefix = "bert.",
          .own = {{"*.linear1", "mlp.gated_layers"}, {"*.linear2", "mlp.wo"}, {"*.norm2", "mlp.layernorm"}},
          .heads = {"pooler.*", "cls.*", "classifier.*", "qa_outputs.*"}}})};
}
}  // namespace linnet
