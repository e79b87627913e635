// Families of decoder-only models: a table of config.json's keys, a table of tensors, and the options that no key says.
#pragma once
#include "models/families/family.h"
#include "models/modules/text_decoder.h"

namespace linnet {

using DecoderFamily = ConfiguredFamily<DecoderConfig>;

// Architectures name + "ForCausalLM" and name + "Model".
std::vector<Architecture> decoder_architectures(const char* with_head, const char* bare);
std::unique_ptr<Module> make_decoder(const DecoderConfig& config, const ConfigFile& file, ModelHead head);
// A model without a head is one with a tied head here.
bool has_tied_head(const DecoderConfig& config, ModelHead head);

// What Llama and the families after it have in common: keys, and tensors.
Fields<DecoderConfig> llama_fields();
NameTable llama_names(const DecoderConfig& config, ModelHead head);
// "sliding_window" as a window of all layers; `standard` where the key is absent.
Field<DecoderConfig> window_field(int64_t standard);
// Windows in some layers only, which are refused.
Field<DecoderConfig> no_window_field();

// Reads a config.json of any of these families, and writes one: what new_pretrained() takes for a model made here.
DecoderConfig decoder_config(const ConfigFile& file);
ConfigFile decoder_config_file(const std::string& model_type, const DecoderConfig& config);

}  // namespace linnet
