// BERT (Devlin et al. 2019).
#include "models/families/encoder_family.h"

namespace linnet {
namespace {

// The head's activation is that of the layers, in both directions.
Field<EncoderConfig> head_activation() {
  return {[](const ConfigFile&, EncoderConfig& config) { config.head_activation = config.activation; }};
}

Fields<EncoderConfig> absolute_bert_fields() {
  using C = EncoderConfig;
  return bert_fields() + Fields<C>{field("max_position_embeddings", &C::max_seq_len, kSizes),
                                   field("pad_token_id", &C::pad_token, kIds, -1), head_activation()};
}

NameTable bert_names(const EncoderConfig& config, ModelHead head) {
  NameTable table = encoder_names(config, head,
                                  {.prefix = "bert.",
                                   .prefixed_class_dense = true,
                                   .heads = {"qa_outputs.*", "cls.*", "pooler.*", "classifier.*"}});
  table.old_endings = {{"LayerNorm.gamma", "LayerNorm.weight"}, {"LayerNorm.beta", "LayerNorm.bias"}};
  return table;
}

}  // namespace

FamilyList families_of_bert() {
  static const EncoderFamily family("bert", FamilyKind::kEncoder, encoder_architectures("Bert"), EncoderConfig{},
                                    absolute_bert_fields(), make_encoder, bert_names);
  return {&family};
}

}  // namespace linnet
