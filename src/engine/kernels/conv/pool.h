// Pooling of images, alone or after a convolution.
#pragma once
#include <cstddef>
#include <cstdint>
#include "engine/kernels/stored_floats.h"

namespace linnet {
class ThreadPool;

// The largest element of each window of an image, channel by channel, and its gradient. x [N, H, W, C] -> y [N, H', W',
// C] and the offset of the first largest element in its window, row * size + column, u8 of y's shape. NaN counts as
// largest. x and y, or dx and dy, are both fp32 or both bf16; gradients of overlapping windows are summed in fp32. The
// bits do not depend on the number of threads or the instruction set.
struct MaxPoolSizes {
  int64_t images = 0, height = 0, width = 0, channels = 0;
  int64_t out_height = 0, out_width = 0;
  int64_t size = 2, stride = 2;  // of windows; size at most 15, so that places fit a byte

  int64_t row_floats() const { return width * channels; }
};

void max_pool_forward(
    const MaxPoolSizes& sizes, StoredFloats x, MutableStoredFloats y, uint8_t* places, ThreadPool& pool);
// workspace: sizes.row_floats() floats for each thread.
void max_pool_backward(const MaxPoolSizes& sizes, StoredFloats dy, const uint8_t* places, MutableStoredFloats dx,
    std::byte* workspace, ThreadPool& pool);

// A 3x3 convolution with zero padding, bias, ReLU and 2x2 pooling in one pass, for any number of channels and filters;
// and its gradients. Images are [N, H, W, C], weights [O, 3, 3, C], pooled images [N, H / 2, W / 2, O]. Sums over
// images are cut into groups by the shape alone, so results do not depend on the number of threads. NaN and infinity
// come out as arithmetic says. Nothing is allocated.

// The index of a window that ReLU made all zero; no gradient passes.
constexpr uint8_t kDeadWindow = 4;

struct ConvPoolShape {
  int64_t images, height, width, channels, filters;
  constexpr int64_t pooled_height() const { return height / 2; }
  constexpr int64_t pooled_width() const { return width / 2; }
};

// Floats, or bytes that stand for byte * scale[c] + shift[c].
struct ConvPoolImages {
  const float* floats = nullptr;
  const uint8_t* bytes = nullptr;
  const float *scale = nullptr, *shift = nullptr;  // [C]
};

// The gradient of the pooled images: dy itself, or the product factor [N, outputs] weight [outputs, H / 2 * W / 2 * O],
// computed for a few images at a time. At most DenseHeadShape::kMaxOutputs outputs.
struct ConvPoolSlopes {
  const float* dy = nullptr;
  const float *factor = nullptr, *weight = nullptr;
  int64_t outputs = 0;
};

size_t conv_pool_workspace(const ConvPoolShape& shape, int threads);  // any of the three; 64-byte aligned

void conv_pool_forward(const ConvPoolShape& shape, const ConvPoolImages& x, const float* weight, const float* bias,
    float* y, uint8_t* which, std::byte* workspace, ThreadPool& pool);

void conv_pool_weight_gradient(const ConvPoolShape& shape, const ConvPoolImages& x, const uint8_t* which,
    const ConvPoolSlopes& slopes, float* dweight, float* dbias, std::byte* workspace, ThreadPool& pool);

void conv_pool_input_gradient(const ConvPoolShape& shape, const float* weight, const uint8_t* which, const float* dy,
    float* dx, std::byte* workspace, ThreadPool& pool);
}  // namespace linnet
