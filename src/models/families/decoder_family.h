// Families of decoder-only models: a table of config.json's keys, a table of tensors, and the options that no key says.
#pragma once
#include "models/families/family.h"
#include "models/modules/text_decoder.h"

namespace linnet {

using DecoderFamily = ConfiguredFamily<DecoderConfig, FamilyKind::kDecoder>;
// With Llama's names where the table has none.
std::shared_ptr<const Family> decoder_family(FamilyTable<DecoderConfig> table);

// Architectures name + "ForCausalLM" and name + "Model".
std::vector<Architecture> decoder_architectures(const std::string& name);
std::unique_ptr<Module> make_model(const DecoderConfig& config, const ConfigFile& file, ModelHead head);

// What a family's files call the parts of a decoder.
struct DecoderNames {
  std::string prefix = "model.";  // that bare models may leave out...
  std::string inside = "";        // ...and what follows it always
  std::string layers = "layers.*.";
  // Those that differ from Llama's: parameters of layers begin with "*.", names of theirs with '^' for prefix + inside.
  NamePatterns own = {};
  std::vector<std::string> computed = {"layers.*.self_attn.rotary_emb.inv_freq"};
  std::vector<std::string> other_heads = {};
  std::vector<std::pair<std::string, std::string>> old_beginnings = {};

  NameTable operator()(const DecoderConfig& config, ModelHead head, const Module& model) const;
};

// The keys that Llama and the families after it have in common, and `more`.
Fields<DecoderConfig> llama_fields(const Fields<DecoderConfig>& more = {});
// "attention_bias" (of all four projections) and "mlp_bias".
Field<DecoderConfig> bias_fields();
// How many experts there are, by that key, and how many a token has, by "num_experts_per_tok"; and the weight of the
// loss that keeps them equally busy.
Field<DecoderConfig> expert_fields(const char* count);
// The two halves of heads that turn.
Field<DecoderConfig> whole_pairs_field();
// What keys say of rotary positions.
struct RotaryKeys {
  const char *theta = "rope_theta", *share = "partial_rotary_factor";
  double standard_theta = 1e4, standard_share = 1;  // of absent keys
};
// "rope_parameters" since version 5 of transformers; before that the theta and, where positions are scaled,
// "rope_scaling". Written in the older form, which all versions read.
Field<DecoderConfig> rotary_field(const RotaryKeys& keys = {});
// One object of "rope_parameters", or "rope_scaling".
RotaryConfig read_rotary(const ConfigFile& rope, DecoderConfig& config, const RotaryConfig& standard);
// "sliding_window" and "layer_types": the layers that see a window. Without types, all but every `period`th, or as
// "sliding_window_pattern" says. Their rotary positions are those read before.
Field<DecoderConfig> layer_types_field(int64_t window, int64_t period);
// "sliding_window" as a window of all layers; `standard` where the key is absent.
Field<DecoderConfig> window_field(int64_t standard);
// The same where "use_sliding_window" says so: without types, layers from "max_window_layers" on see the window.
Field<DecoderConfig> upper_windows_field();

// Reads a config.json of any of these families, and writes one: what new_pretrained() takes for a model made here.
DecoderConfig decoder_config(const ConfigFile& file);
ConfigFile decoder_config_file(const std::string& model_type, const DecoderConfig& config);

}  // namespace linnet
