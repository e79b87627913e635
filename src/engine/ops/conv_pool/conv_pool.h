// Convolution, bias, ReLU and pooling of images in one pass over memory; the convolution's result is never stored.
//
//   y = max_pool_2x2(relu(conv2d(x, weight, stride 1, padding 1) + bias))
//  x [N, H, W, C], float or u8 with a PixelScaling (padding is zero after scaling), weight [O, 3, 3, C], bias [O] -> y
// [N, H / 2, W / 2, O] and u8 of the same shape, for the gradient: which of the four (2 * row + column) was the first
// largest, kDeadWindow if ReLU made all zero. An odd last row or column is dropped. NaN counts as largest.
#pragma once
#include "engine/ir/graph.h"
#include "engine/ops/kernel.h"
#include "engine/ops/pixels/pixels.h"

namespace linnet {
struct ConvReluPoolAttrs {
  PixelScaling scaling;  // of u8 images; empty for floats
  Shape input;           // of the gradient towards x
  void fields(FieldVisitor& visit) { visit("scaling", scaling), visit("input", input); }
};

// The gradient of weight and bias reads x, which, dy; or after the pass fuse_pool_gradient x, which, d [N, K] and w [K,
// H / 2 * W / 2 * O], whose product dy is. Separate nodes, as the first layer's x needs none.
extern const OpDef kConvReluPool, kConvReluPoolWeightGrad, kConvReluPoolInputGrad;

Tensor conv_relu_pool(At x, Tensor weight, Tensor bias, PixelScaling scaling = {});
}  // namespace linnet
