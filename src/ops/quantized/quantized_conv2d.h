// Convolution of images that are rounded to bytes with filters of WeightFormat::kInt8, without groups:
//
//   y[n, i, j, o] = sum over r, s, c of round(x[n, i * stride + r * dilation - before, ..., c]) * w[o, (r, s, c)]
//
// x f32 [N, H, W, C], packed u8 with filters as rows [O, R * S * C] -> y f32 [N, H', W', O]. round() is a
// StaticRounding. The filter, its steps and the zeros around the image may differ between the axes and the ends.
// For inference on CPUs; ONNX's quantized networks are made of it.
#pragma once
#include "kernels/quantized/convolution_int8.h"
#include "ops/quantized/quantized.h"

namespace linnet {

struct QuantizedConv2dAttrs {
  QuantizedAttrs weight = {};
  RoundingAttrs rounding = {};
  WindowAxis vertical = {}, horizontal = {};
  void fields(FieldVisitor& visit) {
    visit("weight", weight), visit("rounding", rounding), visit("vertical", vertical), visit("horizontal", horizontal);
  }
  Int8ConvolutionSizes sizes(const Shape& x) const { return {x[0], x[1], x[2], x[3], vertical, horizontal}; }
};

extern const OpDef kQuantizedConv2d;
KernelList quantized_conv2d_kernels();

Tensor quantized_conv2d(At x, Tensor packed, const PackedShape& shape, const StaticRounding& rounding,
                        const WindowAxis& vertical, const WindowAxis& horizontal);

}  // namespace linnet
