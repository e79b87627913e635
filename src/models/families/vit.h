// ViT: config.json to our configuration and back, and the normalization that a folder's preprocessor_config.json asks
// for.
#pragma once
#include "models/modules/vit.h"
#include "models/families/config_file.h"

namespace linnet {

constexpr const char* kVitArchitecture = "ViTForImageClassification";  // what config.json calls it

// User error naming the key when the file asks for what Vit does not do. `mean` and `deviation` come from the
// preprocessor_config.json beside the file; without one they are 0.5, as transformers has it.
VitConfig vit_config(const ConfigFile& config);
// What new_pretrained() takes for a model that was trained here. User error where images are not square: transformers
// has one size for both sides.
ConfigFile vit_config_file(const VitConfig& config, const std::vector<std::string>& classes);
// The text of preprocessor_config.json for such a model.
std::string vit_preprocessor_file(const VitConfig& config);

}  // namespace linnet
