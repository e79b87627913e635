// Llama, and the like of it: Mistral, Qwen2. config.json to our configuration and back.
#pragma once
#include "models/modules/llama.h"
#include "models/families/config_file.h"

namespace linnet {

// User error naming the key when the file asks for what Llama does not do.
LlamaConfig llama_config(const ConfigFile& config);
// What new_pretrained() takes for a model that was trained here.
ConfigFile llama_config_file(const LlamaConfig& config);

}  // namespace linnet
