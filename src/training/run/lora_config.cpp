#include "training/run/lora_config.h"

#include <algorithm>

namespace linnet {

std::vector<std::string> split_names(const std::string& names) {
  std::vector<std::string> list;
  for (size_t at = 0; at < names.size();) {
    const size_t end = std::min(names.find(',', at), names.size());
    std::string name = names.substr(at, end - at);
    std::erase(name, ' ');
    if (!name.empty()) list.push_back(std::move(name));
    at = end + 1;
  }
  return list;
}

std::optional<LoraOptions> lora_options(const Config& config) {
  if (config.lora.rank == 0) return {};
  return LoraOptions{.rank = config.lora.rank, .alpha = config.lora.alpha, .targets = split_names(config.lora.targets)};
}

}  // namespace linnet
