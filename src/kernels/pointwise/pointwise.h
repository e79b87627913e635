// Runs an elementwise expression over whole arrays.
#pragma once
#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "kernels/pointwise/expression.h"

namespace linnet {

struct PointwiseOperand {
  const float* data;
  int64_t size;  // elements of data: n when kFull, a divisor of n when kSuffix or kPrefix, 1 when kScalar
  Broadcast broadcast;
};

// out[i] = expression(operands at i) for i in [0, n). `out` may be the data of a kFull operand, and overlaps no other.
// Allocates nothing. An expression or operand that does not fit is an internal error.
void pointwise(int64_t n, const Expression& expression, std::span<const PointwiseOperand> operands, float* out,
               ThreadPool& pool);

}  // namespace linnet
