// Which block (layer of a stack) a module path is in.
#pragma once
#include <string_view>

namespace linnet {

// "encoder.layers.3" of "encoder.layers.3.self_attn.in_proj"; empty where the path has no number.
std::string_view block_path(std::string_view scope);

}  // namespace linnet
