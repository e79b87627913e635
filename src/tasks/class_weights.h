// What train.class_weights asks for.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace linnet {

// The weight of each class; none: all count alike. `counts`: how many of `total` training examples have the class, or
// with `several` the label. With one class each, the mean over the training examples is 1. User error for a class that
// there is not.
std::vector<float> class_weights(const std::string& asked, const std::vector<std::string>& names,
                                 const std::vector<int64_t>& counts, int64_t total, bool several = false);

}  // namespace linnet
