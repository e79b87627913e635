#pragma once
#include <cstddef>
#include <vector>

namespace linnet {

// The logits [rows, classes] as probabilities.
std::vector<double> softmax_rows(const std::vector<float>& logits, size_t classes);

}  // namespace linnet
