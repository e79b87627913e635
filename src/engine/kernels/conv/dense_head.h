// The three products of a linear layer with few outputs, such as a classifier's last: w [n, k] has at most kMaxOutputs
// rows. The large operand is read (or written) once, in place, while the small one stays in cache. The order of every
// sum depends on the shape and the instruction set, never on the number of threads. NaN and infinity come out as
// arithmetic says. Nothing is allocated. All matrices are dense and row-major; any size may be zero.
#pragma once
#include <cstdint>

namespace linnet {
class ThreadPool;

struct DenseHeadShape {
  int64_t m, n, k;  // rows of x, outputs, inputs
  static constexpr int64_t kMaxOutputs = 16;
};

// y [m, n] = [relu](x [m, k] w^T [+ bias [n]]). bias may be nullptr; NaN stays NaN.
void dense_head_forward(const DenseHeadShape& shape, const float* x, const float* w, const float* bias, bool relu,
    float* y, ThreadPool& pool);

// dw [n, k] (+)= dy^T [n, m] x [m, k]
void dense_head_weight_gradient(
    const DenseHeadShape& shape, const float* dy, const float* x, bool accumulate, float* dw, ThreadPool& pool);

// dx [m, k] (+)= dy [m, n] w [n, k]
void dense_head_input_gradient(
    const DenseHeadShape& shape, const float* dy, const float* w, bool accumulate, float* dx, ThreadPool& pool);

// Rows [begin, end) of dx [m, k] to out [end - begin, k], on the calling thread, for immediate use.
void dense_head_input_gradient_rows(
    const DenseHeadShape& shape, const float* dy, const float* w, int64_t begin, int64_t end, float* out);
}  // namespace linnet
