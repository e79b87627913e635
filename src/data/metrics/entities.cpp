#include "data/metrics/entities.h"
#include <algorithm>
#include <string_view>

namespace linnet {

std::vector<Entity> find_entities(std::span<const std::string> tags) {
  std::vector<Entity> found;
  bool open = false;  // whether the last entity goes on
  for (size_t i = 0; i < tags.size(); ++i) {
    const std::string_view tag = tags[i];
    // A tag without a prefix, as parts of speech have it, is a label that goes on.
    const bool has_prefix = tag.size() > 2 && tag[1] == '-', is_outside = tag.empty() || tag == "O";
    const char prefix = is_outside ? 'O' : has_prefix ? tag[0] : 'I';
    const std::string_view label = has_prefix ? tag.substr(2) : tag;
    if (prefix == 'O') {
      open = false;
      continue;
    }
    const auto at = static_cast<int64_t>(i);
    const bool goes_on = open && (prefix == 'I' || prefix == 'E') && found.back().label == label;
    if (goes_on) found.back().end = at + 1;
    else found.push_back({at, at + 1, std::string(label)});
    open = prefix == 'B' || prefix == 'I';
  }
  return found;
}

void count_entities(std::span<const std::string> predicted, std::span<const std::string> there, EntityCounts& counts) {
  const std::vector<Entity> found = find_entities(predicted), wanted = find_entities(there);
  for (const Entity& entity : wanted) ++counts[entity.label].there;
  for (const Entity& entity : found) {
    DecisionCounts& of_label = counts[entity.label];
    ++of_label.predicted, of_label.both += std::ranges::count(wanted, entity) > 0;
  }
}

}  // namespace linnet
