// Families of decoder-only models.
#pragma once
#include "models/families/family.h"
#include "models/modules/text_decoder.h"

namespace linnet {
using DecoderFamily = ConfiguredFamily<DecoderConfig, FamilyKind::kDecoder>;
// Uses Llama's names where the table has none.
std::shared_ptr<const Family> decoder_family(FamilyTable<DecoderConfig> table);

std::vector<Architecture> decoder_architectures(const std::string& name);  // name + "ForCausalLM" and name + "Model"
std::unique_ptr<Module> make_model(const DecoderConfig& config, const ConfigFile& file, ModelHead head);

// What a family's files call the parts of a decoder.
struct DecoderNames {
  std::string prefix = "model.";  // bare models may leave it out...
  std::string inside = "";        // ...but not what follows it
  std::string layers = "layers.*.";
  // Names that differ from Llama's: layer parameters begin with "*.", their file names have '^' for prefix + inside.
  NamePatterns own = {};
  std::vector<std::string> computed = {"layers.*.self_attn.rotary_emb.inv_freq"};
  std::vector<std::string> other_heads = {};
  std::vector<std::pair<std::string, std::string>> old_beginnings = {};

  NameTable operator()(const DecoderConfig& config, ModelHead head, const Module& model) const;
};

// Keys of rotary positions.
struct RotaryKeys {
  const char *theta = "rope_theta", *share = nullptr;  // share: null if whole heads turn, whatever a file says
  double standard_theta = 1e4, standard_share = 1;     // of absent keys
};
// The keys that Llama and later families share, and `more`.
Fields<DecoderConfig> llama_fields(const Fields<DecoderConfig>& more = {}, const RotaryKeys& keys = {});
Field<DecoderConfig> bias_fields();  // "attention_bias" (all four projections) and "mlp_bias"
// The number of experts, by key `count`, and per token ("num_experts_per_tok"), and the weight of the load loss.
Field<DecoderConfig> expert_fields(const char* count);
Field<DecoderConfig> whole_pairs_field();  // rotated parts of heads have two halves
// "rope_parameters" since transformers 5; before, as written, and if a file has both: "rope_scaling" and the theta.
Field<DecoderConfig> rotary_field(const RotaryKeys& keys);
RotaryConfig read_rotary(const ConfigFile& rope, DecoderConfig& config, const RotaryConfig& standard);
// "sliding_window" and "layer_types": the layers with a window; without types, as "sliding_window_pattern" says or all
// but every `period`th. Their rotary positions are those read before.
Field<DecoderConfig> layer_types_field(int64_t window, int64_t period);
// "sliding_window" for all layers; `standard` if the key is absent.
Field<DecoderConfig> window_field(int64_t standard);
// The same if "use_sliding_window" is true: without types, for layers from "max_window_layers" on.
Field<DecoderConfig> upper_windows_field();

// Reads and writes a config.json of any of these families; new_pretrained() takes a written one.
DecoderConfig decoder_config(const ConfigFile& file);
ConfigFile decoder_config_file(const std::string& model_type, const DecoderConfig& config);
}  // namespace linnet
