// Batch normalization (Ioffe & Szegedy 2015) of x [rows, channels]: every channel over all rows, and its gradient.
//
// Sums over rows are cut into chunks by the number of rows alone, so results do not depend on the number of threads.
// Each chunk's squares are taken around its own mean, and chunks are joined as Chan, Golub & LeVeque (1983) do, so that
// a mean that is large beside the deviation costs no precision.
//
// x, y, dy and dx are all fp32 or all bf16 in memory; everything else is fp32, and so is the arithmetic.
#pragma once
#include <cstddef>
#include <cstdint>
#include "engine/kernels/stored_floats.h"

namespace linnet {

class ThreadPool;

struct BatchNormArgs {
  int64_t rows = 0, channels = 0;
  StoredFloats x;
  const float *weight = nullptr, *bias = nullptr;  // [channels]
  double epsilon = 1e-5;
  bool relu = false;  // y = relu(...)
};

size_t batch_norm_workspace(int64_t rows, int64_t channels);  // bytes, of either function

// mean, variance [channels]: of the rows; the variance over `rows`, not rows - 1. residual: of x's shape and type,
// added before the ReLU; or null.
void batch_norm_forward(const BatchNormArgs& args, StoredFloats residual, MutableStoredFloats y, float* mean,
                        float* variance, std::byte* workspace, ThreadPool& pool);
// The gradient of a forward pass without residual. With ReLU, elements of dy whose y was not above zero count as zero:
// y is computed again from x, with the bits of the forward pass. Without, the bias is not used.
void batch_norm_backward(const BatchNormArgs& args, StoredFloats dy, const float* mean, const float* variance,
                         MutableStoredFloats dx, float* dweight, float* dbias, std::byte* workspace, ThreadPool& pool);

}  // namespace linnet
