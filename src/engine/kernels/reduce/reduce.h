// Sums of squares and of rows, in an order that depends on the shape alone; softmax; top-k of rows.
#pragma once
#include <cstddef>
#include <cstdint>
#include "base/thread_pool.h"
#include "engine/kernels/stored_floats.h"

namespace linnet {
// Bytes of scratch memory for sum_of_squares, aligned for double.
size_t sum_workspace(int64_t n);

// Added up in double, 4096 elements at a time.
double sum_of_squares(int64_t n, const float* x, void* workspace, ThreadPool& pool);
// The partial sums of sum_of_squares(), one for each kSumBlock elements.
constexpr int64_t kSumBlock = 4096;
void block_squares(int64_t n, const float* x, double* blocks, ThreadPool& pool);

// out[i] = the largest x[i, j], NaN if there is one; -inf of no elements.
void row_maxima(int64_t rows, int64_t width, const float* x, float* out, ThreadPool& pool);

size_t sum_rows_workspace(int64_t rows, int64_t width);  // in bytes, aligned for float

// out[j] = sum over i of x[i, j], for x [rows, width]: the gradient of a bias.
void sum_rows(int64_t rows, int64_t width, StoredFloats x, float* out, void* workspace, ThreadPool& pool);

// out[j] = (accumulate ? out[j] : 0) + the sum of `rows` rows of x in order, such as partial sums; row r begins at
// x + r * stride. Tasks have `columns` columns each.
void add_rows(int64_t rows, int64_t stride, int64_t width, const float* x, bool accumulate, float* out, int64_t columns,
    ThreadPool& pool);

// y[i, j] = exp(x[i, j] - max_i) / sum_j exp(x[i, j] - max_i) for x [rows, width]; y has x's type and may be x. A row
// of only -inf (all masked) gives zeros; NaN or +inf make their row NaN.
void softmax_forward(int64_t rows, int64_t width, StoredFloats x, MutableStoredFloats y, ThreadPool& pool);

// dx = y * (dy - sum over the row of dy * y); all have one type, and dx may be dy or y.
void softmax_backward(
    int64_t rows, int64_t width, StoredFloats dy, StoredFloats y, MutableStoredFloats dx, ThreadPool& pool);

// y[i] = log sum_j exp(x[i, j]) for x [rows, width]; -inf for a row of only -inf.
void log_sum_exp_rows(int64_t rows, int64_t width, const float* x, float* y, ThreadPool& pool);

// For each row of x [rows, width]: its k <= width largest elements in descending order, equal ones by index, in values
// [rows, k] and ids [rows, k]. NaN counts as -inf.
void top_k_rows(int64_t rows, int64_t width, int64_t k, const float* x, float* values, int32_t* ids);
}  // namespace linnet
