#pragma once
#include <cstddef>
#include <vector>

namespace linnet {

// The logits [rows, classes] as probabilities of one class each, which sum to 1 over a row.
std::vector<double> softmax_rows(const std::vector<float>& logits, size_t classes);
// The probability of one label by itself.
double sigmoid(double logit);

}  // namespace linnet
