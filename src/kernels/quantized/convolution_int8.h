// Convolutions of images whose pixels are rounded to bytes, with filters of WeightFormat::kInt8: sums of products are
// exact 32-bit integers.
//
//   y[n, i, j, o] = sum over r, s, c of round(x[n, i * stride + r * dilation - before, ..., c]) * weight[o, (r, s, c)]
//
// Images are rounded once; patches of them, the windows that results are computed of, are written as rows of a matrix
// a block at a time, which stays in the cache while it is multiplied. Around an image lies the code that stands for 0.
#pragma once
#include "kernels/quantized/gemm_int8.h"

namespace linnet {

// The filter along one axis of an image.
struct WindowAxis {
  int64_t size = 1, stride = 1, dilation = 1;
  int64_t before = 0, after = 0;  // zeros around the image

  int64_t padded(int64_t length) const { return before + length + after; }
  // How many windows fit on an axis of `length` pixels; 0: the window is larger than the padded axis.
  int64_t count(int64_t length) const {
    const int64_t room = padded(length) - ((size - 1) * dilation + 1);
    return room < 0 ? 0 : room / stride + 1;
  }
  void fields(auto& visit) {
    visit("size", size), visit("stride", stride), visit("dilation", dilation);
    visit("before", before), visit("after", after);
  }
};

struct Int8ConvolutionSizes {
  int64_t images = 0, height = 0, width = 0, channels = 0;
  WindowAxis vertical = {}, horizontal = {};

  int64_t out_height() const { return vertical.count(height); }
  int64_t out_width() const { return horizontal.count(width); }
  int64_t patch() const { return vertical.size * horizontal.size * channels; }
};

// Bytes of workspace.
size_t int8_convolution_workspace(const Int8ConvolutionSizes& sizes, int threads);

// x [images, height, width, channels], y [images, out_height, out_width, filters], all dense. The weight has a row for
// each filter, whose columns are [vertical.size][horizontal.size][channels]. `rounding` has a scale. `workspace` is
// 64-byte aligned. The bits of y depend neither on the threads nor on the instruction set.
void int8_convolution(const Int8ConvolutionSizes& sizes, const PackedWeight& weight, const StaticRounding& rounding,
                      const float* x, float* y, std::byte* workspace, ThreadPool& pool);

}  // namespace linnet
