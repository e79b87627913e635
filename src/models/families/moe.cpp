// Decoders with experts in place of the feed-forward: Mixtral (Jiang et al. 2024), OLMoE (Muennighoff et al. 2024) and
// Qwen3-MoE (Yang et al. 2025), which have the layers of Mistral, OLMo and Qwen3.
#include "models/families/decoder_family.h"

namespace linnet {
namespace {

DecoderConfig moe_kind(QueryKeyNorms norms, bool normalized_choice = false) {
  DecoderConfig config = llama_kind({});
  config.query_key_norms = norms, config.normalized_choice = normalized_choice;
  return config;
}

// Any other value would have layers without experts.
Field<DecoderConfig> all_layers_have_experts() {
  return {[](const ConfigFile& file, DecoderConfig&) {
    if (!file.integers("mlp_only_layers").empty() || file.integer("decoder_sparse_step", 1) != 1)
      file.fail(
          "\"mlp_only_layers\" or \"decoder_sparse_step\" asks for layers without experts, which Linnet does not "
          "support");
  }};
}

// Clipped queries, keys and values.
Field<DecoderConfig> no_clip() {
  return {[](const ConfigFile& file, DecoderConfig&) {
    if (file.has("clip_qkv")) file.fail("\"clip_qkv\" is not supported");
  }};
}

NameTable mixtral_names(const DecoderConfig& config, ModelHead head) {
  return decoder_names(
      config, head,
      {.router = "block_sparse_moe.gate", .experts = "block_sparse_moe.experts.", .expert = {"w1", "w3", "w2"}});
}

// "max_window_layers" says nothing here.
Field<DecoderConfig> window_of_all_layers() {
  constexpr const char *kUsed = "use_sliding_window", *kSize = "sliding_window";
  return {[=](const ConfigFile& file, DecoderConfig& config) {
            if (file.flag(kUsed, false)) config.window = file.size(kSize, 4096);
          },
          [=](const DecoderConfig& config, ConfigFile& file) {
            if (config.window > 0) file.set(kUsed, true), file.set(kSize, config.window);
          }};
}

DecoderFamily moe_family(const char* type, const std::string& name, const DecoderConfig& base,
                         const Fields<DecoderConfig>& more, DecoderFamily::Names names) {
  return {type, FamilyKind::kDecoder, decoder_architectures(name), base, llama_fields() + more, make_decoder, names};
}

}  // namespace

FamilyList families_of_moe() {
  static const DecoderFamily mixtral =
      moe_family("mixtral", "Mixtral", moe_kind(QueryKeyNorms::kNone, /*normalized_choice=*/true),
                 expert_fields("num_local_experts") + Fields<DecoderConfig>{window_field(0)}, mixtral_names);
  static const DecoderFamily olmoe =
      moe_family("olmoe", "Olmoe", moe_kind(QueryKeyNorms::kWhole),
                 expert_fields("num_experts") +
                     Fields<DecoderConfig>{field("norm_topk_prob", &DecoderConfig::normalized_choice, false),
                                           fixed("attention_bias", false), no_clip()},
                 llama_names);
  static const DecoderFamily qwen3 = moe_family(
      "qwen3_moe", "Qwen3Moe", moe_kind(QueryKeyNorms::kHeads),
      Fields<DecoderConfig>{field("moe_intermediate_size", &DecoderConfig::hidden, kSizes),
                            field("head_dim", &DecoderConfig::head_size, kSizes, 128), fixed("attention_bias", false),
                            window_of_all_layers(), all_layers_have_experts()} +
          expert_fields("num_experts") +
          Fields<DecoderConfig>{field("norm_topk_prob", &DecoderConfig::normalized_choice, false)},
      llama_names);
  return {&mixtral, &olmoe, &qwen3};
}

}  // namespace linnet
