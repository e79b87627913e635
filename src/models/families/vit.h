// ViT (Dosovitskiy et al. 2021). `mean` and `deviation` come from preprocessor_config.json, by default 0.5.
#pragma once
#include "models/families/family.h"
#include "models/modules/vit.h"

namespace linnet {
using VitFamily = ConfiguredFamily<VitConfig, FamilyKind::kImages>;
std::unique_ptr<Module> make_model(const VitConfig& config, const ConfigFile& file, ModelHead head);
VitConfig vit_config(const ConfigFile& file);

// A config.json for new_pretrained(). User error for images that are not square, for which it has no size.
ConfigFile vit_config_file(const VitConfig& config, const std::vector<std::string>& classes);
// preprocessor_config.json. `fit`: "crop" or "stretch", kept for Linnet as "image_fit".
std::string vit_preprocessor_file(const VitConfig& config, const std::string& fit);
}  // namespace linnet
