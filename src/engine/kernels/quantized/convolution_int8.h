// Convolutions of images of bytes with filters of WeightFormat::kInt8: sums of products are exact 32-bit integers.
//
//   sum[n, i, j, o] = sum over r, s, c of
//                     round(x[n, i * stride + r * dilation - before, ..., c]) * weight[o, (r, s, c)]
//   y               = relu(sum * scale + bias + residual),  each part of it only where it is given
//
// A task takes a band of rows of an image: it writes their codes, with padding, to a buffer that stays in cache, and
// multiplies windows in place. Windows whose rows are no multiple of 4 bytes (3 channels) are first copied to rows of a
// matrix. Images and summands may be codes on input and output, so that a chain of convolutions never writes floats.
// The bits of y depend neither on threads, nor on other images, nor on the instruction set.
#pragma once
#include "engine/kernels/quantized/gemm_int8.h"

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

struct Int8Convolution {  // all tensors are dense
  Int8ConvolutionSizes sizes;
  const float* x = nullptr;
  const uint8_t* x_codes = nullptr;
  // How x becomes codes, or what its codes stand for. With scale 0 each image has its own scale: its largest magnitude
  // / 127 with zero = 128, or / 255 with zero = 0 for non-negative images. `zero` is that of the weight's sums(), or 0.
  StaticRounding rounding = {};
  const float* scale = nullptr;  // [filters]
  const float* bias = nullptr;   // [filters]
  // Of y's shape, as floats or as codes by residual_rounding; must not overlap y.
  const float* residual = nullptr;
  const uint8_t* residual_codes = nullptr;
  StaticRounding residual_rounding = {};
  bool relu = false;  // NaN stays NaN, as a float
  // y [images, out_height, out_width, filters]: floats, or codes by y_rounding. A NaN becomes `least`.
  float* y = nullptr;
  uint8_t* y_codes = nullptr;
  StaticRounding y_rounding = {};
};

size_t int8_convolution_workspace(const Int8ConvolutionSizes& sizes, int64_t filters, int threads);  // in bytes

// The weight has a row for each filter, with columns [vertical.size][horizontal.size][channels]. `workspace`: 64-byte
// aligned.
void int8_convolution(const Int8Convolution& args, const PackedWeight& weight, std::byte* workspace, ThreadPool& pool);
}  // namespace linnet
