// Activation functions as configurations name them.
#pragma once
#include "models/modules/blocks.h"
#include "models/families/config_file.h"

namespace linnet {

// The value of `key`; `standard` when it is absent. User error when there is no such function here.
Activation activation_of(const ConfigFile& config, const std::string& key, Activation standard);
const char* activation_name(Activation activation);  // "gelu_new"
// A positive number.
double positive_of(const ConfigFile& config, const std::string& key, double standard);
double probability_of(const ConfigFile& config, const std::string& key, double standard);  // in [0, 1)
// Layers, heads, width: positive, and the width a multiple of the heads.
void check_heads(const ConfigFile& config, const std::string& width, const std::string& heads);

}  // namespace linnet
