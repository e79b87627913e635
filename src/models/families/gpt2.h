// GPT-2: config.json to our configuration and back.
#pragma once
#include "models/modules/gpt.h"
#include "models/families/config_file.h"

namespace linnet {

// User error naming the key when the file asks for what Gpt does not do.
GptConfig gpt2_config(const ConfigFile& config);
// What new_pretrained() takes for a model that was trained here.
ConfigFile gpt2_config_file(const GptConfig& config);

}  // namespace linnet
