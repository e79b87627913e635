// T5: config.json to our configuration and back.
#pragma once
#include "models/modules/t5.h"
#include "models/families/config_file.h"

namespace linnet {

// User error naming the key when the file asks for what T5 does not do.
T5Config t5_config(const ConfigFile& config);
// What new_pretrained() takes for a model that was trained here.
ConfigFile t5_config_file(const T5Config& config);

}  // namespace linnet
