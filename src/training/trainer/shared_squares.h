// The sum of squares of a gradient of which each rank has a slice, with the bits that the op sum_of_squares gives of
// the whole: the partial sum of each block of kSliceUnit values is computed by the rank that owns its first value,
// which gets the rest of the block from the ranks behind it.
#pragma once
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "distributed/comm/communicator.h"

namespace linnet {

class SharedSquares {
 public:
  explicit SharedSquares(Communicator& world) : world_(world) {}

  // Every rank gives its slice of the values that `bounds` divide, and gets the sum.
  float sum(std::span<const float> own, const SliceBounds& bounds, ThreadPool& pool);

 private:
  std::span<const float> complete_last_block(std::span<const float> own, const SliceBounds& bounds);

  Communicator& world_;
  std::vector<double> blocks_;
  std::vector<float> last_block_;
};

}  // namespace linnet
