// Weights by train.class_weights.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace linnet {
// The weight of each class; empty: all equal. `counts`: how many of the `total` training examples have each class (with
// `several`, label). With one class each, the mean over training examples is 1. User error for an unknown class.
std::vector<float> class_weights(const std::string& asked, const std::vector<std::string>& names,
    const std::vector<int64_t>& counts, int64_t total, bool several = false);
}  // namespace linnet
