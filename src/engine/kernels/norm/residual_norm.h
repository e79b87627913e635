// One sub-layer's result on its way into the residual stream and through the norm that follows, in one pass over rows:
// dropout (engine/kernels/random/dropout.h), addition and the norm (engine/kernels/norm/layer_norm.h), with the same
// bits as the three one after another.
//
// x, f, sum and y, and dy, sum, dsum, dx and df, are all fp32 or all bf16 in memory; everything else is fp32, and so is
// the arithmetic. In bf16 it is the sum as stored that is normalized, since the gradient will read that.
#pragma once
#include <cstddef>
#include <cstdint>
#include "base/thread_pool.h"
#include "engine/kernels/stored_floats.h"

namespace linnet {

// Which elements of [rows, width] are dropped: those of dropout() where a sample is rows_per_sample rows.
struct ResidualDropout {
  float p = 0;  // 0: none
  uint64_t key = 0;
  int64_t rows_per_sample = 1;
};

//   sum = x + dropout(f),  y = (sum - mean) * rstd * weight + bias,  mean and rstd [rows] of sum's rows
// x, f, sum, y [rows, width]. sum may be x or f, y may be the other one. weight and bias may be null; the mean is 0
// when not centered.
struct ResidualNormForward {
  int64_t rows = 0, width = 0;
  StoredFloats x, f;
  const float *weight = nullptr, *bias = nullptr;
  float epsilon = 0;
  ResidualDropout dropout;
  MutableStoredFloats sum, y;
  float *mean = nullptr, *rstd = nullptr;
  bool centered = true;
};
void residual_norm_forward(const ResidualNormForward& args, ThreadPool& pool);

//   dx = dsum + the gradient of the norm,  df = dropout(dx)
// dsum may be null, df too (without dropout it would be dx); dweight and dbias [width] are written, or null. dx and df
// may be dy, sum or dsum.
struct ResidualNormBackward {
  int64_t rows = 0, width = 0;
  StoredFloats dy, sum, dsum;
  const float *weight = nullptr, *mean = nullptr, *rstd = nullptr;
  ResidualDropout dropout;
  MutableStoredFloats dx, df;
  float *dweight = nullptr, *dbias = nullptr;
  bool centered = true;
};
size_t residual_norm_backward_workspace(int64_t rows, int64_t width);
void residual_norm_backward(const ResidualNormBackward& args, void* workspace, ThreadPool& pool);

}  // namespace linnet
