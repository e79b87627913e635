// Families of decoder-only models: a table of config.json's keys, a table of tensors, and the options that no key says.
#pragma once
#include "models/families/family.h"
#include "models/modules/text_decoder.h"

namespace linnet {

using DecoderFamily = ConfiguredFamily<DecoderConfig>;

// Architectures name + "ForCausalLM" and name + "Model".
std::vector<Architecture> decoder_architectures(const std::string& name);
std::vector<Architecture> decoder_architectures(const char* with_head, const char* bare);
std::unique_ptr<Module> make_decoder(const DecoderConfig& config, const ConfigFile& file, ModelHead head);
// A model without a head is one with a tied head here.
bool has_tied_head(const DecoderConfig& config, ModelHead head);

// What a family's files call the parts of a decoder; defaults are Llama's. Those of layers begin with
// prefix + layers + the layer's number + ".". Parts that the configuration does not have are not read.
struct DecoderNames {
  std::string prefix = "model.";  // that bare models may leave out...
  std::string inside = "";        // ...and what follows it always
  std::string tokens = "embed_tokens", positions = "", project_in = "project_in", project_out = "project_out";
  std::string final_norm = "norm", head = "lm_head";
  std::string norm1 = "input_layernorm", norm2 = "post_attention_layernorm";
  std::string result_norm1 = "", result_norm2 = "";
  std::vector<std::string> queries_keys_values = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
  std::string output = "self_attn.o_proj", query_norm = "self_attn.q_norm", key_norm = "self_attn.k_norm";
  // One name for queries, keys and values: the rows of one tensor, or head by head.
  bool by_heads = false;
  std::string linear1 = "mlp.gate_proj", linear3 = "mlp.up_proj", linear2 = "mlp.down_proj";
  // Of experts, each of which is experts + its number + ".": its linear1, linear3 and linear2.
  std::string router = "mlp.gate", experts = "mlp.experts.";
  std::vector<std::string> expert = {"gate_proj", "up_proj", "down_proj"};
  std::vector<std::string> computed = {"layers.*.self_attn.rotary_emb.inv_freq"};
};
NameTable decoder_names(const DecoderConfig& config, ModelHead head, const DecoderNames& names);

// What Llama and the families after it have in common: keys, and tensors.
Fields<DecoderConfig> llama_fields();
NameTable llama_names(const DecoderConfig& config, ModelHead head);
// "attention_bias" (of all four projections) and "mlp_bias".
Fields<DecoderConfig> bias_fields();
// How many experts there are, by that key, and how many a token has, by "num_experts_per_tok"; and the weight of the
// loss that keeps them equally busy.
Fields<DecoderConfig> expert_fields(const char* count);
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
