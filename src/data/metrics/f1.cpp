#include "data/metrics/f1.h"

#include <vector>

namespace linnet {

double f1_score(std::span<const int32_t> predictions, std::span<const int32_t> labels, int64_t classes) {
  std::vector<DecisionCounts> counts(static_cast<size_t>(classes));
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] < 0) continue;
    ++counts[static_cast<size_t>(predictions[i])].predicted, ++counts[static_cast<size_t>(labels[i])].there;
    counts[static_cast<size_t>(labels[i])].both += predictions[i] == labels[i];
  }
  if (classes == 2) return counts[1].f1();
  double sum = 0;
  for (const DecisionCounts& of_class : counts) sum += of_class.f1();
  return classes > 0 ? sum / static_cast<double>(classes) : 0;
}

}  // namespace linnet
