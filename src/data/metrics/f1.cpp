#include "data/metrics/f1.h"

#include <vector>

namespace linnet {

double f1_score(std::span<const int32_t> predictions, std::span<const int32_t> labels, int64_t classes) {
  std::vector<int64_t> both(static_cast<size_t>(classes)), predicted(both), there(both);
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] < 0) continue;
    ++predicted[static_cast<size_t>(predictions[i])], ++there[static_cast<size_t>(labels[i])];
    both[static_cast<size_t>(labels[i])] += predictions[i] == labels[i];
  }
  // 2 / (1 / precision + 1 / recall) = 2 both / (predicted + there)
  const auto of_class = [&](size_t c) {
    const int64_t all = predicted[c] + there[c];
    return all > 0 ? 2 * static_cast<double>(both[c]) / static_cast<double>(all) : 0.0;
  };
  if (classes == 2) return of_class(1);
  double sum = 0;
  for (size_t c = 0; c < both.size(); ++c) sum += of_class(c);
  return classes > 0 ? sum / static_cast<double>(classes) : 0;
}

}  // namespace linnet
