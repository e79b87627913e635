// BART (Lewis et al. 2020), mBART (Liu et al. 2020), Pegasus (Zhang et al. 2020), M2M100 (Fan et al. 2021) and NLLB:
// encoder-decoders that differ in norms and positions. "layerdrop", which skips layers in training, is ignored.
#include "models/families/transformer_family.h"

namespace linnet {
namespace {
constexpr int64_t kFirstRow = 2;  // of BART's position tables; earlier rows are unused

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

// The first row depends on the padding token's id.
void read_first_position(const ConfigFile& file, TransformerConfig& config) {
  if (config.pad_token < 0 || config.pad_token > 1000) file.fail("\"pad_token_id\" is out of range");
  config.first_position = config.pad_token + 1;
}

std::shared_ptr<const Family> bart_family(
    const char* type, const std::string& name, const TransformerConfig& base, const Fields<TransformerConfig>& fields) {
  return transformer_family({.model_type = type,
      .architectures = {{name + "ForConditionalGeneration", ModelHead::kTokens}, {name + "Model", ModelHead::kNone}},
      .base = base,
      .fields = fields,
      .names = transformer_names});
}
}  // namespace

FamilyList families_of_bart() {
  using C = TransformerConfig;
  const Fields<C> fields = transformer_fields() + Fields<C>{shared_vocabulary()};
  const C shared{.share_embeddings = true, .tie_head = true};
  C pegasus_kind = norms_first(shared), m2m_kind = norms_first(shared);
  pegasus_kind.positions = Positions::kHalved;
  m2m_kind.positions = Positions::kInclusive, m2m_kind.head_bias = false;
  return {bart_family("bart", "Bart", bart_kind(), fields),
      bart_family("mbart", "MBart", norms_first(bart_kind()), fields),
      bart_family("pegasus", "Pegasus", pegasus_kind, fields),
      bart_family("m2m_100", "M2M100", m2m_kind,
          transformer_fields(Activation::kRelu, true) + Fields<C>{shared_vocabulary(), {read_first_position}})};
}
}  // namespace linnet
