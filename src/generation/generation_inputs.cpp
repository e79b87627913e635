#include "generation/generation_inputs.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <tuple>

namespace linnet {
namespace {

bool is_of_generation(const std::string& name) {
  constexpr std::array<std::string_view, 3> kPrefixes{"generate.", "cache.", "memory."};
  return std::ranges::any_of(kPrefixes, [&](std::string_view prefix) { return name.starts_with(prefix); });
}

}  // namespace

void bind_generation_inputs(Store& store, const std::vector<const Graph*>& graphs, std::optional<Location> cache) {
  std::map<std::string, TensorType> largest;
  for (const Graph* graph : graphs)
    for (const GraphInput& input : graph->inputs()) {
      if (!is_of_generation(input.name)) continue;
      const TensorType& type = graph->value(input.value).type;
      TensorType& have = largest.try_emplace(input.name, type).first->second;
      if (type.bytes() > have.bytes()) have = type;
    }
  for (const bool floats : {false, true}) {
    std::vector<std::tuple<std::string, size_t, size_t>> locations;  // name, offset, bytes
    size_t offset = 0;
    for (const auto& [name, type] : largest) {
      if (store.has(name) || is_float(type.dtype) != floats) continue;
      locations.emplace_back(name, offset, type.bytes());
      offset += (type.bytes() + 63) / 64 * 64;
    }
    if (locations.empty()) continue;
    Location begin{};
    if (!floats)
      begin.region = store.add_region("decoding batch", MemoryKind::kBatch, offset);
    else if (!cache)
      begin.region = store.add_region("decoding cache", MemoryKind::kCache, offset);
    else
      begin = *cache, store.grow_region(begin.region, begin.offset + offset);
    for (const auto& [name, start, bytes] : locations) store.bind(name, {begin.region, begin.offset + start}, bytes);
  }
}

}  // namespace linnet
