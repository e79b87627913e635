// Layer normalization and, not centered, RMS normalization (Ba et al. 2016; Zhang and Sennrich 2019).
//
// x, y, dy and dx are all fp32 or all bf16 in memory; everything else is fp32, and so is the arithmetic.
#pragma once
#include <cstddef>
#include <cstdint>
#include "base/thread_pool.h"
#include "engine/kernels/stored_floats.h"

namespace linnet {

// Over every row of x [rows, width]:
//   mean = sum(x) / width (0 when not centered), rstd = 1 / sqrt(sum((x - mean)^2) / width + epsilon)
//   y = (x - mean) * rstd * weight + bias
// weight and bias [width], mean and rstd [rows] may be null. y may be x.
void layer_norm_forward(int64_t rows, int64_t width, StoredFloats x, const float* weight, const float* bias,
                        float epsilon, MutableStoredFloats y, float* mean, float* rstd, ThreadPool& pool,
                        bool centered = true);

// Bytes of scratch memory for the backward pass; 0 is possible.
size_t layer_norm_backward_workspace(int64_t rows, int64_t width);

// With n = (x - mean) * rstd and g = dy * weight:
//   dx = rstd * (g - sum(g) / width (when centered) - n * sum(g n) / width)
//   dweight = sum over rows of dy * n, dbias = sum over rows of dy; both are written, not accumulated.
// weight may be null, and so may dweight and dbias; mean may be null when not centered. dx may be dy.
void layer_norm_backward(int64_t rows, int64_t width, StoredFloats dy, StoredFloats x, const float* weight,
                         const float* mean, const float* rstd, MutableStoredFloats dx, float* dweight, float* dbias,
                         void* workspace, ThreadPool& pool, bool centered = true);

}  // namespace linnet
