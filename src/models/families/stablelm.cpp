// StableLM (Bellagente et al. 2024): Llama's layers with layer norms; a quarter of each head turns. 12B is refused: it
// has norm weights per head for queries and keys, and one norm for parallel attention and feed-forward.
#include "models/families/decoder_family.h"

namespace linnet {
FamilyList families_of_stablelm() {
  using C = DecoderConfig;
  C base = llama_kind({});
  base.norms = NormKind::kLayer;
  // It would drop the feed-forward's results alone; `dropout` drops attention's and the embeddings too.
  const auto refuse_hidden_dropout = [](const ConfigFile& file, C&) {
    if (file.number("hidden_dropout", 0) != 0) file.fail("\"hidden_dropout\" is not 0, Linnet supports only 0");
  };
  return {decoder_family({.model_type = "stablelm",
      .architectures = decoder_architectures("StableLm"),
      .base = base,
      .fields = llama_fields({field("max_position_embeddings", &C::max_seq_len, kSizes, 4096),
          positive("layer_norm_eps", &C::epsilon, 1e-5),
          rotary_field({.share = "partial_rotary_factor", .standard_share = 0.25}), whole_pairs_field(),
          field("pad_token_id", &C::pad_token, kIds, -1), {refuse_hidden_dropout}, fixed("qk_layernorm", false),
          fixed("use_parallel_residual", false), biases("use_qkv_bias", {&Biases::attention})})})};
}
}  // namespace linnet
