// BART (Lewis et al. 2020), mBART (Liu et al. 2020), Pegasus (Zhang et al. 2020) and M2M100 (Fan et al. 2021), whose
// layers NLLB has, too: encoder-decoders that differ in where norms stand and in their positions. "layerdrop" leaves
// layers out while transformers trains; here none are.
#include "models/families/transformer_family.h"

namespace linnet {
namespace {

constexpr int64_t kFirstRow = 2;  // of BART's position tables, whose first rows nobody reads

TransformerConfig bart_kind() {
  return {.share_embeddings = true,
          .tie_head = true,
          .positions = Positions::kLearned,
          .first_position = kFirstRow,
          .embedding_norm = true};
}

TransformerConfig norms_first(TransformerConfig config) {
  config.norm_first = config.final_norm = true;
  return config;
}

Fields<TransformerConfig> bart_fields() {
  return transformer_fields() + Fields<TransformerConfig>{shared_vocabulary()};
}

// Padding has a position, too: that of its id.
void read_first_position(const ConfigFile& file, TransformerConfig& config) {
  if (config.pad_token < 0 || config.pad_token > 1000) file.fail("\"pad_token_id\" is out of range");
  config.first_position = config.pad_token + 1;
}

TransformerFamily bart_family(const char* type, const std::string& name, const TransformerConfig& base,
                              Fields<TransformerConfig> bart_fields) {
  return {type,
          FamilyKind::kEncoderDecoder,
          {{name + "ForConditionalGeneration", ModelHead::kTokens}, {name + "Model", ModelHead::kNone}},
          base,
          std::move(bart_fields),
          make_transformer,
          transformer_names};
}

}  // namespace

FamilyList families_of_bart() {
  using C = TransformerConfig;
  const C shared{.share_embeddings = true, .tie_head = true};
  C pegasus_kind = norms_first(shared), m2m_kind = norms_first(shared);
  pegasus_kind.positions = Positions::kHalved;
  m2m_kind.positions = Positions::kInclusive, m2m_kind.head_bias = false;
  static const TransformerFamily bart = bart_family("bart", "Bart", bart_kind(), bart_fields());
  static const TransformerFamily mbart = bart_family("mbart", "MBart", norms_first(bart_kind()), bart_fields());
  static const TransformerFamily pegasus = bart_family("pegasus", "Pegasus", pegasus_kind, bart_fields());
  static const TransformerFamily m2m =
      bart_family("m2m_100", "M2M100", m2m_kind,
                  transformer_fields(Activation::kRelu, true) + Fields<C>{shared_vocabulary(), {read_first_position}});
  return {&bart, &mbart, &pegasus, &m2m};
}

}  // namespace linnet
