// ELECTRA (Clark et al. 2020): BERT's layers without a pooler; the embeddings may be narrower. A folder of the
// published discriminator (ElectraForPreTraining) is read without its head.
#include "models/families/encoder_family.h"

namespace linnet {
namespace {

EncoderConfig electra_kind() {
  EncoderConfig config;
  config.has_pooler = false, config.pooler_dropout = true;
  config.pooler_activation = Activation::kGelu;  // also of the masked head, whatever that of the layers
  return config;
}

Field<EncoderConfig> embedding_size() {
  constexpr const char* kKey = "embedding_size";
  return {[=](const ConfigFile& file, EncoderConfig& config) {
            const int64_t size = file.has(kKey) ? integer_in(file, kKey, kWidths) : 128;
            config.embedding_width = size == config.width ? 0 : size;
          },
          [=](const EncoderConfig& config, ConfigFile& file) {
            file.set(kKey, config.embedding_width > 0 ? config.embedding_width : config.width);
          }};
}

Fields<EncoderConfig> electra_fields() {
  using C = EncoderConfig;
  return bert_fields() + Fields<C>{field("max_position_embeddings", &C::max_seq_len, kSizes, 512),
                                   field("pad_token_id", &C::pad_token, kIds, 0), embedding_size()};
}

NameTable electra_names(const EncoderConfig& config, ModelHead head) {
  return encoder_names(config, head,
                       {.prefix = "electra.",
                        .projection = "embeddings_project",
                        .masked_dense = "generator_predictions.dense",
                        .masked_norm = "generator_predictions.LayerNorm",
                        .masked_bias = "generator_lm_head.bias",
                        .masked_copies = {"generator_lm_head.weight"},
                        .class_dense = "classifier.dense",
                        .classifier = "classifier.out_proj",
                        .heads = {"generator_*", "discriminator_predictions.*", "classifier.*", "qa_outputs.*"}});
}

std::vector<Architecture> electra_architectures() {
  std::vector<Architecture> all = encoder_architectures("Electra");
  all.push_back({"ElectraForPreTraining", ModelHead::kNone});
  return all;
}

}  // namespace

FamilyList families_of_electra() {
  static const EncoderFamily family("electra", FamilyKind::kEncoder, electra_architectures(), electra_kind(),
                                    electra_fields(), make_encoder, electra_names);
  return {&family};
}

}  // namespace linnet
