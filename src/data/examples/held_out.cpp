#include "data/examples/held_out.h"

#include <algorithm>
#include <cmath>

#include "base/hash.h"
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
    const auto count = static_cast<int64_t>(of_class[label].size());
    if (count < 2) continue;
    const auto wanted = static_cast<int64_t>(std::llround(share * static_cast<double>(count)));
    const int64_t part = std::clamp<int64_t>(wanted, count >= 3 ? 1 : 0, count / 2);
    const ShuffledIndex shuffled(count, mix64(seed * 1000003 + label));
    for (int64_t i = 0; i < part; ++i) chosen[of_class[label][static_cast<size_t>(shuffled(i))]] = true;
  }
  return chosen;
}

}  // namespace linnet
