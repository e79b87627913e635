// Whole numbers with a scale and a zero point: value = (code - zero) * scale. Computed in floats; a value that was
// quantized is a whole number in its range.
#pragma once
#include <optional>

#include "onnx/call.h"

namespace linnet {

struct QuantizedRange {
  double least, most;
};
// Of a type of 8, 16 or 32 bits; user error for others.
QuantizedRange quantized_range(const OnnxCall& call, OnnxElement element);

// A scale or zero point, which is one number, a number for each index of an axis, or one for each block along it
// (block 0: no blocks), in a shape that broadcasts to x.
Tensor along_axis(const OnnxCall& call, Tensor values, const Shape& x, int axis, int64_t block);

struct Scaling {
  Tensor scale, zero;  // zero may be undefined
};
// Of the operands `scale` and `zero`, the latter of which may be left out.
Scaling scaling_of(OnnxCall& call, size_t scale, size_t zero, const Shape& x, int axis, int64_t block);
// The same where they are known and not for blocks: one number, or one for each index of the axis.
std::optional<TracedQuantization> quantization_of(const OnnxCall& call, size_t scale, size_t zero, OnnxElement element);
// The node's attribute "axis", as QuantizeLinear means it.
int quantized_axis(const OnnxCall& call, const Shape& x);

Tensor dequantized(const OnnxCall& call, Tensor x, const Scaling& s);
Tensor quantized(const OnnxCall& call, Tensor x, const Scaling& s, QuantizedRange range);

// The product of matrices of whole numbers.
Tensor whole_product(OnnxCall& call, Tensor a, Tensor b);
// The node as a Conv of other operands: [N, O, ...].
Tensor conv_of(OnnxCall& call, TracedValue x, TracedValue w);

}  // namespace linnet
