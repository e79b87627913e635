// linear_cross_entropy between its matrix products, on a chunk of rows of logits.
#pragma once
#include "engine/ops/kernel.h"

namespace linnet {
// x = logits + bias; loss of a row = lse(x) - (1 - s) x[target] - s mean(x), 0 if the target is negative. With `dloss`,
// the logits become their gradients: dloss (softmax(x) - (1 - s) onehot(target) - s / width), 0 if the target is
// negative. A target beyond the classes makes both NaN.
struct SoftmaxLoss {
  int64_t rows = 0, width = 0, stride = 0;  // stride: elements from row to row, a multiple of 8; rows begin at 16 bytes
  DType type = DType::kF32;                 // of the logits
  void* logits = nullptr;
  const float* bias = nullptr;       // [width], may be null
  const int32_t* targets = nullptr;  // [rows]
  float smoothing = 0;
  const float* dloss = nullptr;  // one number; null: no gradient
  float* losses = nullptr;       // [rows], may be null
};
void softmax_loss(Device* device, const SoftmaxLoss& loss);

// to[j] = (add ? to[j] : 0) + sum over rows of x[row][j], in an order that depends on the sizes alone. parts:
// column_parts(rows) * width floats.
int64_t column_parts(int64_t rows);
void sum_columns(Device* device, DType type, int64_t rows, int64_t width, int64_t stride, const void* x, float* parts,
    float* to, bool add);

void sum_numbers(Device* device, int64_t n, const float* from, float* to);  // in a fixed order
}  // namespace linnet
