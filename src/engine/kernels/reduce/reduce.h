// Sums over arrays and over rows, in an order that depends on the shape alone.
#pragma once
#include <cstddef>
#include <cstdint>
#include "base/thread_pool.h"
#include "engine/kernels/stored_floats.h"

namespace linnet {

// Bytes of scratch memory for sum and sum_of_squares, aligned for double.
size_t sum_workspace(int64_t n);

// Added up in double, 4096 elements at a time.
double sum(int64_t n, const float* x, void* workspace, ThreadPool& pool);
double sum_of_squares(int64_t n, const float* x, void* workspace, ThreadPool& pool);
// The partial sums that sum_of_squares() adds in their order: one for each kSumBlock elements.
constexpr int64_t kSumBlock = 4096;
void block_squares(int64_t n, const float* x, double* blocks, ThreadPool& pool);

// Bytes of scratch memory for sum_rows, aligned for float.
size_t sum_rows_workspace(int64_t rows, int64_t width);

// out[j] = (accumulate ? out[j] : 0) + sum over i of x[i, j], for x [rows, width]: the gradient of a bias.
void sum_rows(int64_t rows, int64_t width, StoredFloats x, float* out, bool accumulate, void* workspace,
              ThreadPool& pool);

}  // namespace linnet
