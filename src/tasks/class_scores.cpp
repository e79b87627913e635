#include "tasks/class_scores.h"

#include <algorithm>
#include <cmath>

namespace linnet {

std::vector<double> softmax_rows(const std::vector<float>& logits, size_t classes) {
  std::vector<double> probabilities(logits.size());
  for (size_t row = 0; row < logits.size(); row += classes) {
    const double largest = *std::max_element(logits.begin() + static_cast<std::ptrdiff_t>(row),
                                             logits.begin() + static_cast<std::ptrdiff_t>(row + classes));
    double sum = 0;
    for (size_t i = row; i < row + classes; ++i) sum += probabilities[i] = std::exp(logits[i] - largest);
    for (size_t i = row; i < row + classes; ++i) probabilities[i] /= sum;
  }
  return probabilities;
}

double sigmoid(double logit) { return 1 / (1 + std::exp(-logit)); }

}  // namespace linnet
