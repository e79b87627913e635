// Numbers become whole ones and come back: QuantizeLinear and DequantizeLinear, and sums of products of 8-bit numbers
// that have no scale yet.
#include <cmath>

#include "onnx/compose.h"
#include "onnx/operators.h"
#include "onnx/quantized_numbers.h"
#include "onnx/quantized_product.h"
#include "engine/ops/literal/literal.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
namespace {

using compose::E;
using compose::elementwise;
using compose::Ref;

void quantize_linear(OnnxCall& call) {
  const Shape x = call.shape();
  const auto type = static_cast<OnnxElement>(call.integer("output_dtype", 0));
  const OnnxElement element = call.has(2)                       ? call.element(2)
                              : type != OnnxElement::kUndefined ? type
                                                                : OnnxElement::kUint8;
  call.integer("precision", 0);
  const Scaling scaling = scaling_of(call, 1, 2, x, quantized_axis(call, x), call.integer("block_size", 0));
  const Tensor before = call.tensor(0, DType::kF32);
  call.set(0, quantized(call, before, scaling, quantized_range(call, element)), element);
  if (auto known = quantization_of(call, 1, 2, element)) {
    known->before = before;
    call.set_quantization(*known);
  }
}

void dequantize_linear(OnnxCall& call) {
  const Shape x = call.shape();
  quantized_range(call, call.element());
  const auto type = static_cast<OnnxElement>(call.integer("output_dtype", 0));
  const OnnxElement element = type != OnnxElement::kUndefined ? type : call.element(1);
  const Scaling scaling = scaling_of(call, 1, 2, x, quantized_axis(call, x), call.integer("block_size", 0));
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

// Whole numbers less their zero point, which is one, or one for each index of the first axis. As if a scale of 1 had
// been multiplied by.
TracedValue less_zero(OnnxCall& call, size_t operand, size_t zero) {
  const Tensor x = call.tensor(operand, DType::kF32);
  TracedValue value{.tensor = x};
  if (call.has(zero))
    value.tensor = elementwise(call, {x, along_axis(call, call.tensor(zero, DType::kF32), x.shape(), 0, 0)},
                               [](E& e, const std::vector<Ref>& v) { return e.apply(Scalar::kSub, v[0], v[1]); });
  if (call.has(zero) && (!call.is_known(zero) || call.shape(zero).rank() > 1)) return value;
  TracedQuantization known{.element = call.element(operand), .scales = {1}, .zeros = {0}};
  if (call.has(zero)) known.zeros = call.numbers(zero);
  known.scales.assign(known.zeros.size(), 1);
  known.codes = call.in(operand).known;
  value.quantization = std::make_shared<TracedQuantization>(std::move(known));
  return value;
}

// With a zero point that only the run knows: the sums of what is left beyond the middle of the bytes' range, less
// the rest of the zero point times the sums of the weights that meet the image, not the zeros around it.
std::optional<Tensor> convolution_of_bytes(OnnxCall& call, const TracedValue& w) {
  if (!w.quantization || !call.has(2) || call.is_known(2) || call.shape(2).elements() != 1 ||
      call.integer("group", 1) != 1)
    return std::nullopt;
  const double middle = call.element() == OnnxElement::kUint8 ? 128 : 0;
  TracedValue x{.tensor = call.tensor(0, DType::kF32) + -middle};
  x.quantization = std::make_shared<TracedQuantization>(
      TracedQuantization{.element = call.element(), .scales = {1}, .zeros = {middle}});
  const Tensor sums = conv_of(call, x, w);
  Shape image = x.shape();
  image.set(0, 1), image.set(1, 1);
  const Tensor channel_sums = compose::axis_from_end(compose::sum_last(compose::axis_to_end(w.tensor, 1)), 1);
  const Tensor weights = conv_of(call, {.tensor = call.uniform(1, image, DType::kF32)}, {.tensor = channel_sums});
  return elementwise(call, {sums, reshape(call.tensor(2, DType::kF32), {}), weights},
                     [middle](E& e, const std::vector<Ref>& v) {
                       const Ref rest = e.apply(Scalar::kSub, v[1], e.constant(middle));
                       return e.apply(Scalar::kSub, v[0], e.apply(Scalar::kMul, rest, v[2]));
                     });
}

void conv_integer(OnnxCall& call) {
  const TracedValue w = less_zero(call, 1, 3);
  const std::optional<Tensor> sums = convolution_of_bytes(call, w);
  call.set(0, sums ? *sums : conv_of(call, less_zero(call, 0, 2), w), OnnxElement::kInt32);
}

}  // namespace

void add_quantized_operators(std::vector<OnnxOperatorRow>& rows) {
  const OnnxOperatorRow list[] = {
      {"ConvInteger", conv_integer, "sums beyond 2^24 are rounded to floats"},
      {"DequantizeLinear", dequantize_linear, "of 8, 16 and 32 bits"},
      {"DynamicQuantizeLinear", dynamic_quantize_linear},
      {"MatMulInteger", matmul_integer, "of matrices"},
      {"QuantizeLinear", quantize_linear, "to 8, 16 and 32 bits"},
  };
  rows.insert(rows.end(), std::begin(list), std::end(list));
}

}  // namespace linnet
