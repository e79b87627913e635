// Whole numbers with a scale: what QuantizeLinear writes and DequantizeLinear reads. Computed in floats; a value that
// was quantized is a whole number in its range.
#include <cmath>

#include "onnx/compose.h"
#include "onnx/operators.h"
#include "ops/matmul/matmul.h"
#include "ops/movement/movement.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"

namespace linnet {
namespace {

using compose::E;
using compose::elementwise;
using compose::Ref;

struct Range {
  double least, most;
};
Range range_of(const OnnxCall& call, OnnxElement element) {
  switch (element) {
    case OnnxElement::kUint8:
      return {0, 255};
    case OnnxElement::kInt8:
      return {-128, 127};
    case OnnxElement::kUint16:
      return {0, 65535};
    case OnnxElement::kInt16:
      return {-32768, 32767};
    case OnnxElement::kInt32:
      return {-2147483648.0, 2147483647.0};
    default:
      call.fail("numbers of the type " + element_name(element));
  }
}

// A scale or zero point, which is one number, a number for each index of an axis, or one for each block along it.
Tensor along_axis(const OnnxCall& call, Tensor values, const Shape& x, int axis, int64_t block) {
  if (values.shape().elements() == 1) return reshape(values, {});
  if (values.shape().rank() == 1 && x.rank() != 1) {
    if (values.dim(0) != x[axis]) call.fail("scales of shape " + values.shape().text() + " for " + x.text());
    Shape shape;
    for (int i = 0; i < x.rank(); ++i) shape.push_back(i == axis ? x[axis] : 1);
    return reshape(values, shape);
  }
  if (block <= 0) return values;
  // Each number stands for `block` elements of the axis; the last block may be shorter.
  std::vector<int64_t> from;
  for (int64_t i = 0; i < x[axis]; ++i) from.push_back(i / block);
  return compose::take(values, axis, from);
}

struct Scaling {
  Tensor scale, zero;  // zero may be undefined
};
Scaling scaling_of(OnnxCall& call, size_t scale, size_t zero, const Shape& x, int axis, int64_t block) {
  Scaling scaling{along_axis(call, call.tensor(scale, DType::kF32), x, axis, block), {}};
  if (call.has(zero)) scaling.zero = along_axis(call, call.tensor(zero, DType::kF32), x, axis, block);
  return scaling;
}

Tensor dequantized(const OnnxCall& call, Tensor x, const Scaling& s) {
  if (!s.zero.defined())
    return elementwise(call, {x, s.scale},
                       [](E& e, const std::vector<Ref>& v) { return e.apply(Scalar::kMul, v[0], v[1]); });
  return elementwise(call, {x, s.scale, s.zero}, [](E& e, const std::vector<Ref>& v) {
    return e.apply(Scalar::kMul, e.apply(Scalar::kSub, v[0], v[2]), v[1]);
  });
}

Tensor quantized(const OnnxCall& call, Tensor x, const Scaling& s, Range range) {
  const auto limited = [range](E& e, Ref whole) {
    return e.apply(Scalar::kMin, e.apply(Scalar::kMax, whole, e.constant(range.least)), e.constant(range.most));
  };
  if (!s.zero.defined())
    return elementwise(call, {x, s.scale}, [&](E& e, const std::vector<Ref>& v) {
      return limited(e, e.apply(Scalar::kRound, e.apply(Scalar::kDiv, v[0], v[1])));
    });
  return elementwise(call, {x, s.scale, s.zero}, [&](E& e, const std::vector<Ref>& v) {
    const Ref whole = e.apply(Scalar::kRound, e.apply(Scalar::kDiv, v[0], v[1]));
    return limited(e, e.apply(Scalar::kAdd, whole, v[2]));
  });
}

int axis_of(const OnnxCall& call, const Shape& x) {
  const int64_t axis = call.integer("axis", 1);
  return x.rank() > 1 ? call.axis(axis, x.rank()) : 0;
}

void quantize_linear(OnnxCall& call) {
  const Shape x = call.shape();
  const auto type = static_cast<OnnxElement>(call.integer("output_dtype", 0));
  const OnnxElement element = call.has(2)                       ? call.element(2)
                              : type != OnnxElement::kUndefined ? type
                                                                : OnnxElement::kUint8;
  call.integer("precision", 0);
  const Scaling scaling = scaling_of(call, 1, 2, x, axis_of(call, x), call.integer("block_size", 0));
  call.set(0, quantized(call, call.tensor(0, DType::kF32), scaling, range_of(call, element)), element);
}

void dequantize_linear(OnnxCall& call) {
  const Shape x = call.shape();
  range_of(call, call.element());
  const auto type = static_cast<OnnxElement>(call.integer("output_dtype", 0));
  const OnnxElement element = type != OnnxElement::kUndefined ? type : call.element(1);
  const Scaling scaling = scaling_of(call, 1, 2, x, axis_of(call, x), call.integer("block_size", 0));
  call.set(0, dequantized(call, call.tensor(0, DType::kF32), scaling), element);
}

// uint8 with the range of the tensor's numbers, which includes 0.
void dynamic_quantize_linear(OnnxCall& call) {
  const Tensor x = call.tensor(0);
  const Tensor row = reshape(x, {1, x.shape().elements()});
  const Tensor zero = call.number(0, DType::kF32);
  const auto extreme = [&](Tensor (*of_two)(Tensor, Tensor)) {
    const Tensor found = reshape(compose::fold_last(row, of_two), {1});
    return elementwise(call, {found, zero}, [&](E& e, const std::vector<Ref>& v) {
      return e.apply(of_two == compose::maximum ? Scalar::kMax : Scalar::kMin, v[0], v[1]);
    });
  };
  const Tensor least = extreme(compose::minimum), most = extreme(compose::maximum);
  const Tensor scale = elementwise(call, {least, most}, [](E& e, const std::vector<Ref>& v) {
    return e.apply(Scalar::kDiv, e.apply(Scalar::kSub, v[1], v[0]), e.constant(255));
  });
  const Tensor point = elementwise(call, {least, scale}, [](E& e, const std::vector<Ref>& v) {
    const Ref whole = e.apply(Scalar::kRound, e.apply(Scalar::kNeg, e.apply(Scalar::kDiv, v[0], v[1])));
    const Ref limited = e.apply(Scalar::kMin, e.apply(Scalar::kMax, whole, e.constant(0)), e.constant(255));
    // Of a tensor of zeros alone the scale is 0.
    return e.apply(Scalar::kSelect, e.apply(Scalar::kEqual, v[1], e.constant(0)), e.constant(0), limited);
  });
  const Scaling scaling{reshape(scale, {}), reshape(point, {})};
  call.set(0, quantized(call, x, scaling, {0, 255}), OnnxElement::kUint8);
  call.set(1, scaling.scale, OnnxElement::kFloat);
  call.set(2, scaling.zero, OnnxElement::kUint8);
}

// Whole numbers less their zero point, in floats. A product of 8-bit numbers is exact in 32 bits up to 2^24, which a
// row of 256 may pass, so it is computed in doubles.
Tensor centered(OnnxCall& call, size_t operand, size_t zero, bool rows) {
  const Tensor x = call.tensor(operand, DType::kF64);
  if (!call.has(zero)) return x;
  Tensor point = call.tensor(zero, DType::kF64);
  if (point.shape().elements() == 1)
    point = reshape(point, {});
  else if (rows && point.shape().rank() == 1)
    point = reshape(point, {point.dim(0), 1});
  return elementwise(call, {x, point},
                     [](E& e, const std::vector<Ref>& v) { return e.apply(Scalar::kSub, v[0], v[1]); });
}

Tensor whole_product(OnnxCall& call, Tensor a, Tensor b) {
  if (a.shape().rank() < 2 || b.shape().rank() < 2) call.fail("of a vector");
  if (b.shape().rank() > 2 && a.shape().rank() != b.shape().rank()) call.fail("operands of other numbers of axes");
  return matmul(a, b);
}

void matmul_integer(OnnxCall& call) {
  call.set(0, whole_product(call, centered(call, 0, 2, true), centered(call, 1, 3, false)), OnnxElement::kInt32);
}

// a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point
void qlinear_matmul(OnnxCall& call) {
  const auto operand = [&](size_t i) {
    const Tensor x = call.tensor(i, DType::kF32);
    const int axis = i == 0 ? x.shape().rank() - 2 : x.shape().rank() - 1;
    return dequantized(call, x, scaling_of(call, i + 1, i + 2, x.shape(), std::max(axis, 0), 0));
  };
  const Tensor y = whole_product(call, operand(0), operand(3));
  const Scaling scaling = scaling_of(call, 6, 7, y.shape(), y.shape().rank() - 1, 0);
  call.set(0, quantized(call, y, scaling, range_of(call, call.element(7))), call.element(7));
}

}  // namespace

void add_quantized_operators(std::vector<OnnxOperatorRow>& rows) {
  const OnnxOperatorRow list[] = {
      {"DequantizeLinear", dequantize_linear, "of 8, 16 and 32 bits"},
      {"DynamicQuantizeLinear", dynamic_quantize_linear},
      {"MatMulInteger", matmul_integer, "of matrices"},
      {"QLinearMatMul", qlinear_matmul, "of matrices"},
      {"QuantizeLinear", quantize_linear, "to 8, 16 and 32 bits"},
  };
  rows.insert(rows.end(), std::begin(list), std::end(list));
}

}  // namespace linnet
