// Softmax over rows, and its logarithm's denominator.
#pragma once
#include <cstdint>
#include "base/thread_pool.h"
#include "engine/kernels/stored_floats.h"

namespace linnet {

// y[i, j] = exp(x[i, j] - max_i) / sum_j exp(x[i, j] - max_i) for x [rows, width]; y has the type of x and may be x. A
// row that is -inf everywhere (all of it masked) gives zeros; NaN or +inf make their row NaN.
void softmax_forward(int64_t rows, int64_t width, StoredFloats x, MutableStoredFloats y, ThreadPool& pool);

// dx = y * (dy - sum over the row of dy * y); all have one type, and dx may be dy or y.
void softmax_backward(int64_t rows, int64_t width, StoredFloats dy, StoredFloats y, MutableStoredFloats dx,
                      ThreadPool& pool);

// y[i] = log sum_j exp(x[i, j]) for x [rows, width]. A row that is -inf everywhere gives -inf.
void log_sum_exp_rows(int64_t rows, int64_t width, const float* x, float* y, ThreadPool& pool);

}  // namespace linnet
