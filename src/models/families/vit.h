// ViT (Dosovitskiy et al. 2021), and the normalization that a folder's preprocessor_config.json asks for: `mean` and
// `deviation` come from the file beside config.json; without one they are 0.5, as transformers has it.
#pragma once
#include "models/families/family.h"
#include "models/modules/vit.h"

namespace linnet {

using VitFamily = ConfiguredFamily<VitConfig, FamilyKind::kImages>;
std::unique_ptr<Module> make_model(const VitConfig& config, const ConfigFile& file, ModelHead head);
VitConfig vit_config(const ConfigFile& file);

// What new_pretrained() takes for a model that was trained here. User error where images are not square: transformers
// has one size for both sides.
ConfigFile vit_config_file(const VitConfig& config, const std::vector<std::string>& classes);
// The text of preprocessor_config.json for such a model.
std::string vit_preprocessor_file(const VitConfig& config);

}  // namespace linnet
