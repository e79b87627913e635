// Batch normalization (Ioffe & Szegedy 2015) of x [rows, channels], every channel over all rows, and its gradient. Sums
// over rows are cut into chunks by the number of rows alone, so results do not depend on the number of threads. Each
// chunk's squares are relative to its own mean, and chunks are joined as in Chan, Golub & LeVeque (1983), so that a
// large mean costs no precision. x, y, dy and dx are all fp32 or all bf16 in memory; everything else, also the
// arithmetic, is fp32.
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
// The gradient of a forward pass without residual. With ReLU, elements of dy with y <= 0 count as zero: y is recomputed
// from x, with the bits of the forward pass. Otherwise the bias is not used.
void batch_norm_backward(const BatchNormArgs& args, StoredFloats dy, const float* mean, const float* variance,
    MutableStoredFloats dx, float* dweight, float* dbias, std::byte* workspace, ThreadPool& pool);

// Layer normalization and, not centered, RMS normalization of rows (Ba et al. 2016; Zhang and Sennrich 2019): of x
// alone, or of a sub-layer's result f added to the residual stream x, with dropout (random/philox.h) and addition in
// the same pass, with the bits of three passes. x, f, sum and y, and dy, sum, dsum, dx and df, are all fp32 or all bf16
// in memory; everything else, also the arithmetic, is fp32. In bf16 the sum is normalized as stored, since the gradient
// reads that.

// The dropped elements of [rows, width]: those of dropout() if a sample is rows_per_sample rows.
struct ResidualDropout {
  float p = 0;  // 0: none
  uint64_t key = 0;
  int64_t rows_per_sample = 1;
};

//   sum = x + dropout(f), or x without f
//   mean = its mean (0 when not centered),  rstd = 1 / sqrt(mean((sum - mean)^2) + epsilon), of each row
//   y = (sum - mean) * rstd * weight + bias
// x, f, sum, y [rows, width]. sum, written only with f, may be x or f, and y the other one; without f, y may be x.
// weight and bias [width], mean and rstd [rows] may be null.
struct RowNormForward {
  int64_t rows = 0, width = 0;
  StoredFloats x, f = {};
  const float *weight = nullptr, *bias = nullptr;
  float epsilon = 0;
  ResidualDropout dropout = {};
  MutableStoredFloats sum = {}, y = {};
  float *mean = nullptr, *rstd = nullptr;
  bool centered = true;
};
void row_norm_forward(const RowNormForward& args, ThreadPool& pool);

// With n = (sum - mean) * rstd, of what was normalized, and g = dy * weight:
//   dx = dsum + rstd * (g - mean(g) (when centered) - n * mean(g n)),  df = dropout(dx)
//   dweight = sum over rows of dy * n,  dbias = sum over rows of dy
// dsum, weight, df (equal to dx without dropout), dweight and dbias may be null, and so may the mean if not centered.
// dx and df may be dy, sum or dsum. dweight and dbias [width] are overwritten.
struct RowNormBackward {
  int64_t rows = 0, width = 0;
  StoredFloats dy, sum, dsum = {};
  const float *weight = nullptr, *mean = nullptr, *rstd = nullptr;
  ResidualDropout dropout = {};
  MutableStoredFloats dx = {}, df = {};
  float *dweight = nullptr, *dbias = nullptr;
  bool centered = true;
};
size_t row_norm_backward_workspace(int64_t rows, int64_t width);  // bytes; 0 is possible
void row_norm_backward(const RowNormBackward& args, void* workspace, ThreadPool& pool);
}  // namespace linnet
