// What the files of operators include, and the rows of the operator table, by file; onnx_operators() in call.h joins
// them.
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

// Products of whole numbers of 8 bits, as processors have them: the weight is known while the network is traced, the
// other operand is rounded by a scale and a zero point that are.

// a W, or a W^T with `trans_b`, of floats that came from 8-bit numbers (TracedQuantization): a [..., K] with one scale,
// W [K, N] of the file with one scale, or one for each output channel. Empty: these two are not such operands.
std::optional<Tensor> quantized_product(OnnxCall& call, const TracedValue& a, const TracedValue& b, bool trans_b);

// The convolution of x [N, C, ...] with a weight [O, C, ...] of the file, over one or two axes and without groups, of
// such operands: [N, ..., O]. Zeros around the image are of floats. Empty as above.
std::optional<Tensor> quantized_convolution(OnnxCall& call, const TracedValue& x, const TracedValue& weight,
                                            std::vector<WindowAxis> axes);

// Whole numbers with a scale and a zero point: value = (code - zero) * scale. Computed in floats; a value that was
// quantized is a whole number in its range.

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

// x by way of uint8, as DynamicQuantizeLinear finds its scale (operators_quantized.cpp).
Tensor dynamically_rounded(OnnxCall& call, Tensor x);

// The product of matrices of whole numbers.
Tensor whole_product(OnnxCall& call, Tensor a, Tensor b);
// The node as a Conv of other operands: [N, O, ...].
Tensor conv_of(OnnxCall& call, TracedValue x, TracedValue w);

}  // namespace linnet
