// SmolLM3 (Bakouch et al. 2025): Llama's layers, every fourth without positions.
#include "models/families/decoder_family.h"

namespace linnet {
namespace {
// "no_rope_layers": 1 for each layer with rotary positions, else 0. By default all have them but every `interval`th.
Field<DecoderConfig> turning_layers() {
  constexpr const char* kKey = "no_rope_layers";
  return {[=](const ConfigFile& file, DecoderConfig& config) {
            const int64_t interval = file.size("no_rope_layer_interval", 4);
            std::vector<int64_t> turns = file.integers(kKey);
            for (int64_t i = 0; !file.has(kKey) && i < config.layers; ++i) turns.push_back((i + 1) % interval != 0);
            if (std::ssize(turns) != config.layers) file.fail("\"no_rope_layers\" does not name each layer once");
            config.layer_kinds.clear();
            for (const int64_t turn : turns)
              config.layer_kinds.push_back({.rotary = turn != 0 ? config.rotary : std::nullopt});
          },
      [=](const DecoderConfig& config, ConfigFile& file) {
        const auto turns =
            mapped<int64_t>(config.layer_kinds, [](const LayerKind& kind) { return kind.rotary ? 1 : 0; });
        if (!turns.empty()) file.set(kKey, turns);
      }};
}
}  // namespace

FamilyList families_of_smollm3() {
  using C = DecoderConfig;
  return {decoder_family({.model_type = "smollm3",
      .architectures = decoder_architectures("SmolLM3"),
      .base = llama_kind({}),
      .fields = llama_fields({rotary_field({.standard_theta = 2e6}), whole_pairs_field(),
          field("num_key_value_heads", &C::kv_heads, kSizes, 4), field("tie_word_embeddings", &C::tied_head, true),
          field("pad_token_id", &C::pad_token, kIds, 128004), turning_layers(), fixed("use_sliding_window", false),
          bias_fields()})})};
}
}  // namespace linnet
