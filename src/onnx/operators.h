// Common includes of operator files, and their rows of the table that onnx_operators() (call.h) joins.
#pragma once
#include <optional>
#include "engine/ir/op.h"
#include "engine/kernels/quantized/convolution_int8.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "onnx/compose.h"

namespace linnet {
using compose::elementwise;
using compose::Number;

using OnnxOperatorRows = std::vector<OnnxOperatorRow>;

OnnxOperatorRows attention_operators();
OnnxOperatorRows elementwise_operators();
OnnxOperatorRows image_operators();
OnnxOperatorRows index_operators();
OnnxOperatorRows known_operators();
OnnxOperatorRows matrix_operators();
OnnxOperatorRows norm_operators();
OnnxOperatorRows quantized_operators();
OnnxOperatorRows recurrent_operators();
OnnxOperatorRows reduce_operators();
OnnxOperatorRows resize_operators();
OnnxOperatorRows shape_operators();

// Products of 8-bit whole numbers; the weight, and the other operand's scale and zero point, are known while tracing.

// a W, or a W^T with `trans_b`, of floats from 8-bit numbers (TracedQuantization): a [..., K] with one scale, W [K, N]
// of the file with one scale or one per output channel. Empty: other operands.
std::optional<Tensor> quantized_product(OnnxCall& call, const TracedValue& a, const TracedValue& b, bool trans_b);

// x [N, C, ...] convolved with the file's weight [O, C, ...], over one or two axes, without groups: [N, ..., O].
// Padding is zero floats. Empty as above.
std::optional<Tensor> quantized_convolution(
    OnnxCall& call, const TracedValue& x, const TracedValue& weight, std::vector<WindowAxis> axes);

// Whole numbers with scale and zero point: value = (code - zero) * scale, computed in floats.

struct QuantizedRange {
  double least, most;
};
// For 8, 16 or 32 bits; user error for others.
QuantizedRange quantized_range(const OnnxCall& call, OnnxElement element);

// A scale or zero point, broadcasting to x: one number, one per index of an axis, or one per block along it (0: none).
Tensor along_axis(const OnnxCall& call, Tensor values, const Shape& x, int axis, int64_t block);

struct Scaling {
  Tensor scale, zero;  // zero may be undefined
};
// Operand `zero` may be omitted.
Scaling scaling_of(OnnxCall& call, size_t scale, size_t zero, const Shape& x, int axis, int64_t block);
// The same if known and without blocks: one number, or one per index of the axis.
std::optional<TracedQuantization> quantization_of(const OnnxCall& call, size_t scale, size_t zero, OnnxElement element);
int quantized_axis(const OnnxCall& call, const Shape& x);  // QuantizeLinear's attribute

Tensor dequantized(const OnnxCall& call, Tensor x, const Scaling& s);
Tensor quantized(const OnnxCall& call, Tensor x, const Scaling& s, QuantizedRange range);

// x rounded to uint8 and back, with DynamicQuantizeLinear's scale (operators_quantized.cpp).
Tensor dynamically_rounded(OnnxCall& call, Tensor x);

Tensor whole_product(OnnxCall& call, Tensor a, Tensor b);  // of matrices of whole numbers
// The node as a Conv of other operands: [N, O, ...].
Tensor conv_of(OnnxCall& call, TracedValue x, TracedValue w);
}  // namespace linnet
