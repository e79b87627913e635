// Whole numbers with a scale: what QuantizeLinear writes and DequantizeLinear reads. Computed in floats; a value that
// was quantized is a whole number in its range.
#include <cmath>

#include "onnx/compose.h"
#include "onnx/operators.h"
#include "onnx/quantized_product.h"
#include "ops/literal/literal.h"
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

// Of scales and zero points that are known, one number or one for each index of the axis.
std::optional<TracedQuantization> quantization_of(const OnnxCall& call, size_t scale, size_t zero,
                                                  OnnxElement element) {
  const Shape x = call.shape();
  if (!call.is_known(scale) || (call.has(zero) && !call.is_known(zero)) || call.shape(scale).rank() > 1 ||
      call.integer("block_size", 0) > 0)
    return std::nullopt;
  TracedQuantization known{.element = element, .scales = call.numbers(scale), .zeros = {0}, .axis = axis_of(call, x)};
  if (call.has(zero)) known.zeros = call.numbers(zero);
  return known;
}

void quantize_linear(OnnxCall& call) {
  const Shape x = call.shape();
  const auto type = static_cast<OnnxElement>(call.integer("output_dtype", 0));
  const OnnxElement element = call.has(2)                       ? call.element(2)
                              : type != OnnxElement::kUndefined ? type
                                                                : OnnxElement::kUint8;
  call.integer("precision", 0);
  const Scaling scaling = scaling_of(call, 1, 2, x, axis_of(call, x), call.integer("block_size", 0));
  const Tensor before = call.tensor(0, DType::kF32);
  call.set(0, quantized(call, before, scaling, range_of(call, element)), element);
  if (auto known = quantization_of(call, 1, 2, element)) {
    known->before = before;
    call.set_quantization(*known);
  }
}

void dequantize_linear(OnnxCall& call) {
  const Shape x = call.shape();
  range_of(call, call.element());
  const auto type = static_cast<OnnxElement>(call.integer("output_dtype", 0));
  const OnnxElement element = type != OnnxElement::kUndefined ? type : call.element(1);
  const Scaling scaling = scaling_of(call, 1, 2, x, axis_of(call, x), call.integer("block_size", 0));
  call.set(0, dequantized(call, call.tensor(0, DType::kF32), scaling), element);
  auto known = quantization_of(call, 1, 2, call.element());
  if (!known || element != OnnxElement::kFloat) return;
  const auto& earlier = call.in(0).quantization;
  if (earlier && earlier->element == known->element && earlier->scales == known->scales &&
      earlier->zeros == known->zeros && earlier->axis == known->axis)
    known->before = earlier->before;
  known->codes = call.in(0).known;
  call.set_quantization(*known);
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

// Sums of bytes by a known weight: the product of a - 0 in whole numbers, less the zero point times the weight's sums.
// Sums above 2^24 are rounded to floats, as the Cast to float that follows in quantized networks rounds them.
std::optional<Tensor> product_of_bytes(OnnxCall& call) {
  if (call.is_known(0) || !call.is_known(1) || (call.has(3) && !call.is_known(3))) return std::nullopt;
  if (call.shape(0).rank() < 2 || call.shape(1).rank() != 2) return std::nullopt;
  TracedValue a = call.in(0), b = call.in(1);
  const bool is_known_zero = call.is_known(2) && call.shape(2).elements() == 1;
  // With a zero point that only the run knows the sums are of what is left beyond the middle: they stay small.
  const double middle = is_known_zero ? call.number(2, 0) : call.has(2) && a.element == OnnxElement::kUint8 ? 128 : 0;
  a.tensor = call.tensor(0, DType::kF32) + -middle;
  a.quantization =
      std::make_shared<TracedQuantization>(TracedQuantization{.element = a.element, .scales = {1}, .zeros = {middle}});
  TracedQuantization weight{.element = b.element, .scales = {1}, .zeros = {0}, .axis = 1, .codes = b.known};
  if (call.has(3)) weight.zeros = call.numbers(3);
  if (weight.zeros.size() > 1) weight.scales.assign(weight.zeros.size(), 1);
  b.quantization = std::make_shared<TracedQuantization>(weight);
  const std::optional<Tensor> sums = quantized_product(call, a, b, false);
  if (!sums || !call.has(2) || is_known_zero) return sums;
  std::vector<float> of_columns(static_cast<size_t>(call.shape(1)[1]));
  const auto columns = std::ssize(of_columns);
  for (int64_t i = 0; i < b.known->type().shape.elements(); ++i)
    of_columns[static_cast<size_t>(i % columns)] += static_cast<float>(
        (*b.known)[i] - weight.zeros[weight.zeros.size() > 1 ? static_cast<size_t>(i % columns) : 0]);
  Tensor point = call.tensor(2, DType::kF32);
  point = point.shape().elements() == 1 ? reshape(point, {}) : reshape(point, {point.dim(0), 1});
  const Tensor weights = literal(call.graph(), {DType::kF32, {columns}}, of_columns.data());
  return elementwise(call, {*sums, point, weights}, [middle](E& e, const std::vector<Ref>& v) {
    return e.apply(Scalar::kSub, v[0], e.apply(Scalar::kMul, e.apply(Scalar::kSub, v[1], e.constant(middle)), v[2]));
  });
}

void matmul_integer(OnnxCall& call) {
  if (const auto sums = product_of_bytes(call)) return call.set(0, *sums, OnnxElement::kInt32);
  call.set(0, whole_product(call, centered(call, 0, 2, true), centered(call, 1, 3, false)), OnnxElement::kInt32);
}

// a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point
void qlinear_matmul(OnnxCall& call) {
  const auto operand = [&](size_t i) {
    const Tensor x = call.tensor(i, DType::kF32);
    const int axis = i == 0 ? x.shape().rank() - 2 : x.shape().rank() - 1;
    return dequantized(call, x, scaling_of(call, i + 1, i + 2, x.shape(), std::max(axis, 0), 0));
  };
  const auto of_bytes = [&](size_t i) {
    TracedValue value{.element = OnnxElement::kFloat, .tensor = operand(i)};
    if (auto known = quantization_of(call, i + 1, i + 2, call.element(i))) {
      known->axis = call.shape(i).rank() - 1;
      known->codes = call.in(i).known;
      value.quantization = std::make_shared<TracedQuantization>(*known);
    }
    return value;
  };
  const TracedValue a = of_bytes(0), b = of_bytes(3);
  const std::optional<Tensor> product = quantized_product(call, a, b, false);
  const Tensor y = product ? *product : whole_product(call, a.tensor, b.tensor);
  const Scaling scaling = scaling_of(call, 6, 7, y.shape(), y.shape().rank() - 1, 0);
  call.set(0, quantized(call, y, scaling, range_of(call, call.element(7))), call.element(7));
}

// The node as a Conv of other operands.
Tensor conv_of(OnnxCall& call, Tensor x, Tensor w) {
  OnnxNode node = call.node();
  node.op = "Conv", node.in = {"x", "w"}, node.out = {"y"};
  OnnxCall conv(node, call.opset(), call.graph(),
                {{.element = OnnxElement::kFloat, .tensor = x}, {.element = OnnxElement::kFloat, .tensor = w}});
  find_onnx_operator("Conv")(conv);
  conv.check_attributes();
  for (const OnnxAttribute& attribute : node.attributes) call.has_attribute(attribute.name.c_str());
  return conv.out()[0].tensor;
}

// Whole numbers less their zero point, which is one, or one for each index of the first axis.
Tensor less_zero(OnnxCall& call, size_t operand, size_t zero) {
  const Tensor x = call.tensor(operand, DType::kF32);
  if (!call.has(zero)) return x;
  return elementwise(call, {x, along_axis(call, call.tensor(zero, DType::kF32), x.shape(), 0, 0)},
                     [](E& e, const std::vector<Ref>& v) { return e.apply(Scalar::kSub, v[0], v[1]); });
}

void conv_integer(OnnxCall& call) {
  call.set(0, conv_of(call, less_zero(call, 0, 2), less_zero(call, 1, 3)), OnnxElement::kInt32);
}

// x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, bias
void qlinear_conv(OnnxCall& call) {
  const auto operand = [&](size_t i) {
    const Tensor x = call.tensor(i, DType::kF32);
    return dequantized(call, x, scaling_of(call, i + 1, i + 2, x.shape(), 0, 0));
  };
  Tensor y = conv_of(call, operand(0), operand(3));
  const auto channels = [&](Tensor values) { return along_axis(call, values, y.shape(), 1, 0); };
  if (call.has(8)) {
    const Tensor bias = elementwise(
        call, {channels(call.tensor(8, DType::kF32)), channels(call.tensor(1)), channels(call.tensor(4))},
        [](E& e, const std::vector<Ref>& v) { return e.apply(Scalar::kMul, v[0], e.apply(Scalar::kMul, v[1], v[2])); });
    y = compose::add(call, y, bias);
  }
  const Scaling scaling = scaling_of(call, 6, 7, y.shape(), 1, 0);
  call.set(0, quantized(call, y, scaling, range_of(call, call.element(7))), call.element(7));
}

}  // namespace

void add_quantized_operators(std::vector<OnnxOperatorRow>& rows) {
  const OnnxOperatorRow list[] = {
      {"ConvInteger", conv_integer, "sums beyond 2^24 are rounded to floats"},
      {"DequantizeLinear", dequantize_linear, "of 8, 16 and 32 bits"},
      {"DynamicQuantizeLinear", dynamic_quantize_linear},
      {"MatMulInteger", matmul_integer, "of matrices"},
      {"QLinearConv", qlinear_conv},
      {"QLinearMatMul", qlinear_matmul, "of matrices"},
      {"QuantizeLinear", quantize_linear, "to 8, 16 and 32 bits"},
  };
  rows.insert(rows.end(), std::begin(list), std::end(list));
}

}  // namespace linnet
