// The largest element of each window of an image, channel by channel. By default windows do not overlap; a last partial
// row or column is dropped (PyTorch's MaxPool2d without padding).
//
// x [N, H, W, C] -> y [N, (H - size) / stride + 1, (W - size) / stride + 1, C] and, for the gradient, u8 of the same
// shape: the offset of the first largest element in its window, row * size + column. NaN counts as largest.
#pragma once
#include "engine/ir/graph.h"
#include "engine/ops/kernel.h"

namespace linnet {
struct MaxPoolAttrs {
  int64_t size = 2, stride = 2;  // size at most 15: places fit a byte
  Shape input = {};              // of the gradient's result
  void fields(FieldVisitor& visit) { visit("size", size), visit("stride", stride), visit("input", input); }
};

extern const OpDef kMaxPool, kMaxPoolGrad;

Tensor max_pool(At x, int64_t size = 2, int64_t stride = 0);  // stride 0: the size
}  // namespace linnet
