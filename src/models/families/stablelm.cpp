// StableLM (Bellagente et al. 2024): Llama's layers with layer norms in place of root-mean-square norms, and a quarter
// of each head turns. The largest one (12B) norms each head's queries and keys by weights of its own and has one norm
// for attention and feed-forward beside each other: no layer here has those, so they are refused.
#include "models/families/decoder_family.h"

namespace linnet {
namespace {

DecoderConfig stablelm_kind() {
  DecoderConfig config = llama_kind({});
  config.norms = NormKind::kLayer;
  return config;
}

Field<DecoderConfig> stablelm_biases() {
  return {
      [](const ConfigFile& file, DecoderConfig& config) { config.biases.attention = file.flag("use_qkv_bias", false); },
      [](const DecoderConfig& config, ConfigFile& file) { file.set("use_qkv_bias", config.biases.attention); }};
}

// It would drop the feed-forward's results alone, where `dropout` drops attention's and the embeddings, too.
Field<DecoderConfig> no_hidden_dropout() {
  return {[](const ConfigFile& file, DecoderConfig&) {
    if (file.number("hidden_dropout", 0) != 0) file.fail("\"hidden_dropout\" is not 0, Linnet supports only 0");
  }};
}

Fields<DecoderConfig> stablelm_fields() {
  using C = DecoderConfig;
  return llama_fields() + Fields<C>{field("max_position_embeddings", &C::max_seq_len, kSizes, 4096),
                                    positive("layer_norm_eps", &C::epsilon, 1e-5),
                                    rotary_field({.standard_share = 0.25}),
                                    whole_pairs_field(),
                                    field("pad_token_id", &C::pad_token, kIds, -1),
                                    no_hidden_dropout(),
                                    fixed("qk_layernorm", false),
                                    fixed("use_parallel_residual", false),
                                    stablelm_biases()};
}

}  // namespace

FamilyList families_of_stablelm() {
  static const DecoderFamily family("stablelm", FamilyKind::kDecoder, decoder_architectures("StableLm"),
                                    stablelm_kind(), stablelm_fields(), make_decoder, llama_names);
  return {&family};
}

}  // namespace linnet
