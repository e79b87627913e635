// Mixtral (Jiang et al. 2024), OLMoE (Muennighoff et al. 2024), Qwen3-MoE (Yang et al. 2025): decoders with experts.
#include "models/families/decoder_family.h"

namespace linnet {
namespace {
// Other values would make layers without experts.
Field<DecoderConfig> all_layers_have_experts() {
  return {[](const ConfigFile& file, DecoderConfig&) {
    if (!file.integers("mlp_only_layers").empty() || file.integer("decoder_sparse_step", 1) != 1)
      file.fail(
          "\"mlp_only_layers\" or \"decoder_sparse_step\" asks for layers without experts, which Linnet does not "
          "support");
  }};
}

Field<DecoderConfig> no_clip() {
  return {[](const ConfigFile& file, DecoderConfig&) {
    if (file.has("clip_qkv")) file.fail("\"clip_qkv\" is not supported");
  }};
}

// "max_window_layers" is ignored.
Field<DecoderConfig> window_of_all_layers() {
  constexpr const char *kUsed = "use_sliding_window", *kSize = "sliding_window";
  return {[=](const ConfigFile& file, DecoderConfig& config) {
            if (file.flag(kUsed, false)) config.window = file.size(kSize, 4096);
          },
      [=](const DecoderConfig& config, ConfigFile& file) {
        if (config.window > 0) file.set(kUsed, true), file.set(kSize, config.window);
      }};
}
}  // namespace

FamilyList families_of_moe() {
  using C = DecoderConfig;
  const Fields<C> mixtral = llama_fields({positive("rms_norm_eps", &C::epsilon, 1e-5),
      rotary_field({.standard_theta = 1e6}), whole_pairs_field(), expert_fields("num_local_experts"), window_field(0)});
  return {decoder_family({.model_type = "mixtral",
              .architectures = decoder_architectures("Mixtral"),
              .base = llama_kind({.normalized_choice = true}),
              .fields = mixtral,
              .names =
                  DecoderNames{.own = {{"*.experts.router", "block_sparse_moe.gate"},
                                   {"*.experts.linear1", "block_sparse_moe.experts.#.w1 block_sparse_moe.experts.#.w3"},
                                   {"*.experts.linear2", "block_sparse_moe.experts.#.w2"}}}}),
      decoder_family({.model_type = "olmoe",
          .architectures = decoder_architectures("Olmoe"),
          .base = llama_kind({.query_key_norms = QueryKeyNorms::kWhole}),
          .fields = llama_fields({expert_fields("num_experts"), field("norm_topk_prob", &C::normalized_choice, false),
              fixed("attention_bias", false), no_clip()})}),
      decoder_family({.model_type = "qwen3_moe",
          .architectures = decoder_architectures("Qwen3Moe"),
          .base = llama_kind({.query_key_norms = QueryKeyNorms::kHeads}),
          .fields = llama_fields(
              {field("moe_intermediate_size", &C::hidden, kSizes), field("head_dim", &C::head_size, kSizes, 128),
                  fixed("attention_bias", false), window_of_all_layers(), all_layers_have_experts(),
                  expert_fields("num_experts"), field("norm_topk_prob", &C::normalized_choice, false)})})};
}
}  // namespace linnet
