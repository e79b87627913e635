// The share of rows whose predicted class is the right one.
#pragma once
#include <cstdint>
#include <span>

namespace linnet {

struct Accuracy {
  int64_t correct = 0, total = 0;

  // Adds a batch; rows with a negative label (padding) are left out. The lists must be equally long.
  void add(std::span<const int32_t> predictions, std::span<const int32_t> labels);
  double value() const;  // 0..1; 0 when there were no rows
};

}  // namespace linnet
