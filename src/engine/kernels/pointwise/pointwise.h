// Runs an elementwise expression over whole arrays.
#pragma once
#include <cstdint>
#include <span>
#include "base/thread_pool.h"
#include "engine/kernels/pointwise/expression.h"
#include "engine/kernels/stored_floats.h"

namespace linnet {
struct PointwiseOperand {
  StoredFloats data;
  int64_t size;  // elements of data: n when kFull, a divisor of n when kSuffix, kPrefix or kMiddle, 1 when kScalar
  Broadcast broadcast;
  int64_t row = 0;  // elements of a row, when kMiddle
};

// out[i] = expression(operands at i) for i in [0, n), computed in fp32 whatever is bf16 in memory. `out` may be the
// data of a kFull operand of its type, and overlaps no other. Allocates nothing. Internal error for an expression or
// operand that does not fit.
void pointwise(int64_t n, const Expression& expression, std::span<const PointwiseOperand> operands,
    MutableStoredFloats out, ThreadPool& pool);
}  // namespace linnet
