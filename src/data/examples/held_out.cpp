#include "data/examples/held_out.h"
#include <algorithm>
#include <cmath>
#include <unordered_map>
#include "base/hash.h"
#include "base/log.h"
#include "data/examples/text/token_chunks.h"

namespace linnet {
std::vector<bool> choose_held_out(const std::vector<int32_t>& labels, double share, uint64_t seed) {
  std::vector<std::vector<size_t>> of_class;
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto label = static_cast<size_t>(labels[i]);
    if (label >= of_class.size()) of_class.resize(label + 1);
    of_class[label].push_back(i);
  }
  std::vector<bool> chosen(labels.size());
  for (size_t label = 0; label < of_class.size(); ++label) {
    const auto count = std::ssize(of_class[label]);
    if (count < 2) continue;
    const auto wanted = static_cast<int64_t>(std::llround(share * static_cast<double>(count)));
    const int64_t part = std::clamp<int64_t>(wanted, count >= 3 ? 1 : 0, count / 2);
    const ShuffledIndex shuffled(count, mix64(seed * 1000003 + label));
    for (int64_t i = 0; i < part; ++i) chosen[of_class[label][shuffled(i)]] = true;
  }
  return chosen;
}

void keep_together(std::vector<bool>& chosen, const std::vector<std::string_view>& keys) {
  const auto wanted = std::ranges::count(chosen, true);
  struct Group {
    size_t first;
    int64_t size = 0;
    bool is_chosen = false;
  };
  std::unordered_map<std::string_view, Group> groups;
  int64_t repeated = 0;
  for (size_t i = 0; i < keys.size(); ++i) repeated += groups.try_emplace(keys[i], Group{i}).first->second.size++ > 0;
  if (repeated == 0) return;
  int64_t left = wanted;
  for (const bool only_chosen : {true, false})
    for (size_t i = 0; i < keys.size(); ++i) {
      Group& group = groups.at(keys[i]);
      if (group.first != i || group.is_chosen || (only_chosen && !chosen[i]) || group.size > left) continue;
      group.is_chosen = true, left -= group.size;
    }
  const bool few = left == wanted;
  for (size_t i = 0; !few && i < keys.size(); ++i) chosen[i] = groups.at(keys[i]).is_chosen;
  log_info(std::to_string(repeated) + " of " + std::to_string(keys.size()) + " examples repeat an earlier one" +
           (few ? ", and too few differ: what is set aside is learned as well"
                : "; they stay with it when some are set aside"));
}
}  // namespace linnet
