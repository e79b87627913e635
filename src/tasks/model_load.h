// How commands, the server and the Python module load a model.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace linnet {
struct ModelLoad {
  int threads = 0;  // 0: the configuration's, or what the machine allows
  std::string device = "cpu";
  std::string quantize = {};               // folder_quantization()
  std::vector<std::string> keep = {};      // parameters that stay in fp32
  std::vector<std::string> adapters = {};  // parse_adapters()
  // For language models.
  std::string draft = {};  // a folder: the draft model (generation/engine.h); "": none
  int64_t draft_tokens = 4;
  // Prefix cache (generation/slot_model.h); 0: none. Unset: none for a single request, else kPrefixAsCache.
  std::optional<int64_t> prefix_megabytes = {};
};
}  // namespace linnet
