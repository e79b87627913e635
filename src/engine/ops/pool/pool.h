// Images: their bytes as numbers, and pooling, alone or after a convolution.
#pragma once
#include <vector>
#include "engine/ops/kernel.h"

namespace linnet {
// Bytes of images as numbers: y = x * scale[c] + shift[c] for the last axis c. x u8 [..., C] -> float [..., C].
struct PixelScaling {  // by channel
  std::vector<float> scale, shift;
  bool operator==(const PixelScaling&) const = default;
  void fields(FieldVisitor& visit) { visit("scale", scale), visit("shift", shift); }
};

// (x / 255 - mean[c]) / deviation[c]; empty lists: mean 0 and deviation 1 in each of `channels`. User error if a list
// has another length or a deviation is not positive.
PixelScaling pixel_scaling(
    int64_t channels, const std::vector<double>& mean = {}, const std::vector<double>& deviation = {});

struct ScalePixelsAttrs {
  PixelScaling scaling = {};
  DType dtype = DType::kF32;
  void fields(FieldVisitor& visit) { visit("scaling", scaling), visit("dtype", dtype); }
};

extern const OpDef kScalePixels;

Tensor scale_pixels(At x, PixelScaling scaling, DType dtype = DType::kF32);

// The largest element of each window of an image, channel by channel. By default windows do not overlap; a last partial
// row or column is dropped (PyTorch's MaxPool2d without padding).
//
// x [N, H, W, C] -> y [N, (H - size) / stride + 1, (W - size) / stride + 1, C] and, for the gradient, u8 of the same
// shape: the offset of the first largest element in its window, row * size + column. NaN counts as largest.
struct MaxPoolAttrs {
  int64_t size = 2, stride = 2;  // size at most 15: places fit a byte
  Shape input = {};              // of the gradient's result
  void fields(FieldVisitor& visit) { visit("size", size), visit("stride", stride), visit("input", input); }
};

extern const OpDef kMaxPool, kMaxPoolGrad;

Tensor max_pool(At x, int64_t size = 2, int64_t stride = 0);  // stride 0: the size

// Convolution, bias, ReLU and pooling of images in one pass over memory; the convolution's result is never stored.
//
//   y = max_pool_2x2(relu(conv2d(x, weight, stride 1, padding 1) + bias))
//  x [N, H, W, C], float or u8 with a PixelScaling (padding is zero after scaling), weight [O, 3, 3, C], bias [O] -> y
// [N, H / 2, W / 2, O] and u8 of the same shape, for the gradient: which of the four (2 * row + column) was the first
// largest, kDeadWindow if ReLU made all zero. An odd last row or column is dropped. NaN counts as largest.
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
