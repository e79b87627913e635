#include "data/metrics/accuracy.h"

#include <string>

#include "base/error.h"

namespace linnet {

void Accuracy::add(std::span<const int32_t> predictions, std::span<const int32_t> labels) {
  if (predictions.size() != labels.size())
    fail_internal("accuracy of " + std::to_string(predictions.size()) + " predictions against " +
                  std::to_string(labels.size()) + " labels");
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] < 0) continue;
    ++total;
    correct += predictions[i] == labels[i];
  }
}

double Accuracy::value() const { return total == 0 ? 0 : static_cast<double>(correct) / static_cast<double>(total); }

}  // namespace linnet
