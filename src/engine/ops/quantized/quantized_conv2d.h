// Convolution of images that are rounded to bytes with filters of WeightFormat::kInt8, without groups:
//
//   sum[n, i, j, o] = sum over r, s, c of round(x[n, i * stride + r * dilation - before, ..., c]) * w[o, (r, s, c)]
//   y               = relu(sum * scale + bias + residual),  each part of it where the attributes say so
//
// x [N, H, W, C], packed u8 with filters as rows [O, R * S * C], scale and bias f32 [O], residual of y's shape -> y [N,
// H', W', O]. round() is a StaticRounding; one without a scale finds one for each image (kernels/quantized/
// convolution_int8.h). x, residual and y are floats, or u8: the codes of a rounding that has a scale. The filter, its
// steps and the zeros around the image may differ between the axes and the ends.
//
// For inference on CPUs. ONNX's quantized networks are made of it; the pass fuse_int8_convolution makes it of
// convolutions whose filters are quantized, and has those that follow each other hand on codes.
#pragma once
#include "engine/kernels/quantized/convolution_int8.h"
#include "engine/ops/quantized/quantized.h"

namespace linnet {

struct QuantizedConv2dAttrs {
  QuantizedAttrs weight = {};
  RoundingAttrs rounding = {};
  WindowAxis vertical = {}, horizontal = {};
  // The operands follow x and the weight in this order.
  bool scale = false, bias = false, residual = false, relu = false;
  // With a scale above 0 the residual, or y, is u8. x is if its type says so.
  RoundingAttrs residual_rounding = {}, result_rounding = {};
  void fields(FieldVisitor& visit) {
    visit("weight", weight), visit("rounding", rounding), visit("vertical", vertical), visit("horizontal", horizontal);
    visit("scale", scale), visit("bias", bias), visit("residual", residual), visit("relu", relu);
    visit("residual_rounding", residual_rounding), visit("result_rounding", result_rounding);
  }
  Int8ConvolutionSizes sizes(const Shape& x) const { return {x[0], x[1], x[2], x[3], vertical, horizontal}; }
  // The index of each operand.
  size_t scale_at() const { return 2; }
  size_t bias_at() const { return 2 + scale; }
  size_t residual_at() const { return 2 + scale + bias; }
};

extern const OpDef kQuantizedConv2d;

Tensor quantized_conv2d(At x, Tensor packed, const PackedShape& shape, const StaticRounding& rounding,
                        const WindowAxis& vertical, const WindowAxis& horizontal);

}  // namespace linnet
