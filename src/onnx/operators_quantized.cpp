// Quantized operators: QuantizeLinear and DequantizeLinear, sums of 8-bit products without a scale, and operators whose
// operands and results are scaled whole numbers: ONNX's QLinear family and those of ONNX Runtime's quantizer.
#include "engine/ops/movement/movement.h"
#include "onnx/compose.h"

namespace linnet {
namespace {
struct QuantizedRange {
  double least, most;
};

// For 8, 16 or 32 bits; user error for others.
QuantizedRange quantized_range(const OnnxCall& call, OnnxElement element) {
  switch (element) {
    case OnnxElement::kUint8: return {0, 255};
    case OnnxElement::kInt8: return {-128, 127};
    case OnnxElement::kUint16: return {0, 65535};
    case OnnxElement::kInt16: return {-32768, 32767};
    case OnnxElement::kInt32: return {-2147483648.0, 2147483647.0};
    default: call.fail("numbers of the type ", element_name(element));
  }
}

// A scale or zero point, broadcasting to x: one number, one per index of an axis, or one per block along it (0: none).
Tensor along_axis(const OnnxCall& call, Tensor values, const Shape& x, int axis, int64_t block) {
  if (values.shape().elements() == 1) return reshape(values, {});
  if (values.shape().rank() == 1 && x.rank() != 1) {
    if (values.dim(0) != x[axis]) call.fail("scales of shape ", values.shape().text(), " for ", x.text());
    return reshape(values, Shape(mapped(x.rank(), [&](int i) { return i == axis ? x[axis] : 1; })));
  }
  if (block <= 0) return values;
  // Each number stands for `block` elements of the axis; the last block may be shorter.
  return compose::take(values, axis, mapped(x[axis], [&](int64_t i) { return i / block; }));
}

// Operand `zero` may be omitted.
Scaling scaling_of(OnnxCall& call, size_t scale, size_t zero, const Shape& x, int axis, int64_t block) {
  Scaling scaling{along_axis(call, call.tensor(scale, DType::kF32), x, axis, block), {}};
  if (call.has(zero)) scaling.zero = along_axis(call, call.tensor(zero, DType::kF32), x, axis, block);
  return scaling;
}

Tensor quantized(const OnnxCall& call, Tensor x, const Scaling& s, QuantizedRange range) {
  const auto limited = [range](Number whole) { return min(max(whole, range.least), range.most); };
  if (!s.zero.defined())
    return elementwise(call, {x, s.scale}, [&](Number x, Number scale) { return limited(round(x / scale)); });
  return elementwise(call, {x, s.scale, s.zero},
      [&](Number x, Number scale, Number zero) { return limited(round(x / scale) + zero); });
}

// QuantizeLinear's attribute.
int quantized_axis(const OnnxCall& call, const Shape& x) {
  const int64_t axis = call.integer("axis", 1);
  return x.rank() > 1 ? call.axis(axis, x.rank()) : 0;
}

// The scaling if known and without blocks: one number, or one per index of the axis.
std::optional<TracedQuantization> quantization_of(
    const OnnxCall& call, size_t scale, size_t zero, OnnxElement element) {
  const Shape x = call.shape();
  if (!call.is_known(scale) || (call.has(zero) && !call.is_known(zero)) || call.shape(scale).rank() > 1 ||
      call.integer("block_size", 0) > 0)
    return std::nullopt;
  TracedQuantization known{
      .element = element, .scales = call.numbers(scale), .zeros = {0}, .axis = quantized_axis(call, x)};
  if (call.has(zero)) known.zeros = call.numbers(zero);
  return known;
}

// Of matrices of whole numbers.
Tensor whole_product(OnnxCall& call, Tensor a, Tensor b) {
  if (a.shape().rank() < 2 || b.shape().rank() < 2) call.fail("of a vector");
  if (b.shape().rank() > 2 && a.shape().rank() != b.shape().rank()) call.fail("operands of other numbers of axes");
  return matmul(a, b);
}

// The node as a Conv of other operands: [N, O, ...].
Tensor conv_of(OnnxCall& call, TracedValue x, TracedValue w) {
  OnnxNode node = call.node();
  node.op = "Conv", node.in = {"x", "w"}, node.out = {"y"};
  OnnxCall conv(node, call.opset(), call.graph(), {std::move(x), std::move(w)});
  find_onnx_operator(node.op)->run(conv);
  conv.check_attributes();
  for (const OnnxAttribute& attribute : node.attributes) call.has_attribute(attribute.name.c_str());
  return conv.out()[0].tensor;
}

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

// For uint8, from the range of the tensor's numbers and 0.
Scaling dynamic_scaling(OnnxCall& call, Tensor x) {
  const auto largest = [](Tensor values) {
    if (values.shape().rank() > 1) values = max_last(values);
    return reshape(max_last(reshape(values, {1, values.shape().elements()})), {1});
  };
  const Tensor most = elementwise(call, {largest(x)}, [](Number x) { return max(x, 0); });
  const Tensor least = elementwise(call, {largest(x * -1.0)}, [](Number x) { return -max(x, 0); });
  const Tensor scale = elementwise(call, {least, most},  // as ONNX Runtime does it for a tensor of zeros
      [](Number least, Number most) { return select(equal(least, most), 1, (most - least) / 255); });
  const Tensor point = elementwise(
      call, {least, scale}, [](Number least, Number scale) { return min(max(round(-(least / scale)), 0), 255); });
  return {reshape(scale, {}), reshape(point, {})};
}

void dynamic_quantize_linear(OnnxCall& call) {
  const Tensor x = call.tensor(0);
  const Scaling scaling = dynamic_scaling(call, x);
  call.set(0, quantized(call, x, scaling, {0, 255}), OnnxElement::kUint8);
  call.set(1, scaling.scale, OnnxElement::kFloat);
  call.set(2, scaling.zero, OnnxElement::kUint8);
}

// Whole numbers less their zero point, in f64: 8-bit products of rows from 256 on exceed 2^24, f32's exact range.
Tensor centered(OnnxCall& call, size_t operand, size_t zero, bool rows) {
  const Tensor x = call.tensor(operand, DType::kF64);
  if (!call.has(zero)) return x;
  Tensor point = call.tensor(zero, DType::kF64);
  if (point.shape().elements() == 1) point = reshape(point, {});
  else if (rows && point.shape().rank() == 1) point = reshape(point, {point.dim(0), 1});
  return elementwise(call, {x, point}, [](Number x, Number zero) { return x - zero; });
}

// Subtracts the zero point's excess over `middle` times the weights' sums.
Tensor less_rest(const OnnxCall& call, Tensor sums, Tensor point, Tensor weights, double middle) {
  return elementwise(call, {sums, point, weights},
      [=](Number sum, Number zero, Number weight) { return sum - (zero - middle) * weight; });
}

// Products of bytes with a known weight: of codes as whole numbers, less the zero point times the weight's sums. Sums
// above 2^24 are rounded to floats, as by the Cast that follows in quantized networks.
std::optional<Tensor> product_of_bytes(OnnxCall& call) {
  if (call.is_known(0) || !call.is_known(1) || (call.has(3) && !call.is_known(3))) return std::nullopt;
  if (call.shape(0).rank() < 2 || call.shape(1).rank() != 2) return std::nullopt;
  TracedValue a = call.in(0), b = call.in(1);
  const bool is_known_zero = call.is_known(2) && call.shape(2).elements() == 1;
  // A zero point known only at run time is taken relative to the middle, which keeps sums small.
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
  std::vector<float> of_columns(call.shape(1)[1]);
  const auto columns = std::ssize(of_columns);
  for (int64_t i = 0; i < b.known->type().shape.elements(); ++i)
    of_columns[i % columns] += static_cast<float>(
        (*b.known)[i] - weight.zeros[weight.zeros.size() > 1 ? static_cast<size_t>(i % columns) : 0]);
  Tensor point = call.tensor(2, DType::kF32);
  point = point.shape().elements() == 1 ? reshape(point, {}) : reshape(point, {point.dim(0), 1});
  const Tensor weights = literal(call.graph(), {DType::kF32, {columns}}, of_columns.data());
  return less_rest(call, *sums, point, weights, middle);
}

void matmul_integer(OnnxCall& call) {
  if (const auto sums = product_of_bytes(call)) return call.set(0, *sums, OnnxElement::kInt32);
  call.set(0, whole_product(call, centered(call, 0, 2, true), centered(call, 1, 3, false)), OnnxElement::kInt32);
}

// Whole numbers less their zero point, which is one or one per index of the first axis; as if the scale were 1.
TracedValue less_zero(OnnxCall& call, size_t operand, size_t zero) {
  const Tensor x = call.tensor(operand, DType::kF32);
  TracedValue value{.tensor = x};
  if (call.has(zero))
    value.tensor = elementwise(call, {x, along_axis(call, call.tensor(zero, DType::kF32), x.shape(), 0, 0)},
        [](Number x, Number zero) { return x - zero; });
  if (call.has(zero) && (!call.is_known(zero) || call.shape(zero).rank() > 1)) return value;
  TracedQuantization known{.element = call.element(operand), .scales = {1}, .zeros = {0}};
  if (call.has(zero)) known.zeros = call.numbers(zero);
  known.scales.assign(known.zeros.size(), 1);
  known.codes = call.in(operand).known;
  value.quantization = std::make_shared<TracedQuantization>(std::move(known));
  return value;
}

// For a zero point known only at run time: sums of codes less the middle, less the zero point's excess times the sums
// of those weights that meet the image rather than padding.
std::optional<Tensor> convolution_of_bytes(OnnxCall& call, const TracedValue& w) {
  if (!w.quantization || !w.quantization->codes || !call.has(2) || call.is_known(2) || call.shape(2).elements() != 1 ||
      call.integer("group", 1) != 1)
    return std::nullopt;
  const double middle = call.element() == OnnxElement::kUint8 ? 128 : 0;
  TracedValue x{.tensor = call.tensor(0, DType::kF32) + -middle};
  x.quantization = std::make_shared<TracedQuantization>(
      TracedQuantization{.element = call.element(), .scales = {1}, .zeros = {middle}});
  const Tensor sums = conv_of(call, x, w);
  Shape image = x.shape();
  image.set(0, 1), image.set(1, 1);
  const TracedQuantization& q = *w.quantization;
  Shape filters = q.codes->type().shape;
  const int64_t taps = filters.elements(2, filters.rank()), each = filters[1] * taps;
  filters.set(1, 1);
  std::vector<double> sums_of_channels(filters.elements());
  for (int64_t i = 0; i < q.codes->type().shape.elements(); ++i)
    sums_of_channels[i / each * taps + i % taps] += (*q.codes)[i] - q.zeros[q.zeros.size() > 1 ? i / each : 0];
  const Tensor weights = conv_of(call, {.tensor = call.uniform(1, image, DType::kF32)},
      {.tensor = call.values(filters, sums_of_channels, DType::kF32)});
  return less_rest(call, sums, reshape(call.tensor(2, DType::kF32), {}), weights, middle);
}

void conv_integer(OnnxCall& call) {
  const TracedValue w = less_zero(call, 1, 3);
  const std::optional<Tensor> sums = convolution_of_bytes(call, w);
  call.set(0, sums ? *sums : conv_of(call, less_zero(call, 0, 2), w), OnnxElement::kInt32);
}

// Operands i, i + 1 and i + 2 (codes, scale, zero point) as floats known to come from bytes, with scales per `axis`.
TracedValue floats_of(OnnxCall& call, size_t i, int axis) {
  const Tensor x = call.tensor(i, DType::kF32);
  TracedValue value{.tensor = dequantized(call, x, scaling_of(call, i + 1, i + 2, x.shape(), axis, 0))};
  if (auto known = quantization_of(call, i + 1, i + 2, call.element(i))) {
    known->axis = axis, known->codes = call.in(i).known;
    value.quantization = std::make_shared<TracedQuantization>(*known);
  }
  return value;
}

// Dequantizes, applies `compute`, and quantizes by operands `scale` and `scale` + 1, or leaves floats if allowed and
// there is no scale. Scales may be per index of `axis`, -1 for the last.
OnnxOperator qlinear(Tensor (*compute)(OnnxCall&), size_t scale, int axis, bool may_be_floats = false) {
  return [=](OnnxCall& call) {
    const Tensor y = compute(call);
    if (may_be_floats && !call.has(scale)) return call.set(0, y, OnnxElement::kFloat);
    const int channels = axis < 0 ? y.shape().rank() - 1 : axis;
    const OnnxElement element = call.has(scale + 1) ? call.element(scale + 1) : call.element();
    const Scaling scaling = scaling_of(call, scale, scale + 1, y.shape(), channels, 0);
    call.set(0, quantized(call, y, scaling, quantized_range(call, element)), element);
  };
}

// Operands: a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point.
Tensor qlinear_matmul(OnnxCall& call) {
  const int rows = std::max(call.shape(0).rank() - 2, 0), columns = call.shape(3).rank() - 1;
  TracedValue a = floats_of(call, 0, rows);
  const TracedValue b = floats_of(call, 3, columns);
  const std::optional<Tensor> product = quantized_product(call, a, b, false);
  return product ? *product : whole_product(call, a.tensor, b.tensor);
}

// An int32 operand in units of the scales of operands 1 and 4 multiplied, along an axis of y.
Tensor with_bias(OnnxCall& call, Tensor y, size_t bias, int axis) {
  const auto along = [&](size_t i) { return along_axis(call, call.tensor(i, DType::kF32), y.shape(), axis, 0); };
  return elementwise(call, {y, along(bias), along(1), along(4)},
      [](Number y, Number bias, Number a, Number b) { return y + bias * (a * b); });
}

// Operands: x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, bias.
Tensor qlinear_conv(OnnxCall& call) {
  const Tensor y = conv_of(call, floats_of(call, 0, 0), floats_of(call, 3, 0));
  return call.has(8) ? with_bias(call, y, 8, 1) : y;
}

// Operands: a, a_scale, a_zero_point, b, b_scale, b_zero_point, bias, y_scale, y_zero_point (none of y: floats).
Tensor qgemm(OnnxCall& call) {
  const bool trans_a = call.flag("transA"), trans_b = call.flag("transB");
  const TracedValue a = floats_of(call, 0, 0), b = floats_of(call, 3, trans_b ? 0 : 1);
  std::optional<Tensor> product;
  if (!trans_a) product = quantized_product(call, a, b, trans_b);
  Tensor y = product ? *product : matmul(a.tensor, b.tensor, trans_a, trans_b);
  if (call.has(6)) y = with_bias(call, y, 6, 1);
  const double alpha = call.real("alpha", 1);
  return alpha == 1 ? y : y * alpha;
}

// Operands: a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point.
template <Scalar function> Tensor of_two(OnnxCall& call) {
  return elementwise(call, {floats_of(call, 0, 0).tensor, floats_of(call, 3, 0).tensor}, [](Number a, Number b) {
    return formula::apply(function, {a, b});
  });
}

// Operands: x, x_scale, x_zero_point, y_scale, y_zero_point.
Tensor global_average_pool(OnnxCall& call) {
  if (call.flag("channels_last")) call.fail("channels_last is set");
  const Tensor x = floats_of(call, 0, 0).tensor;
  Shape shape = x.shape();
  if (shape.rank() < 3) call.fail("a tensor of shape ", shape.text());
  const Tensor y = compose::mean_last(reshape(x, {shape[0], shape[1], shape.elements(2, shape.rank())}));
  for (int axis = 2; axis < shape.rank(); ++axis) shape.set(axis, 1);
  return reshape(y, shape);
}
}  // namespace

Tensor dequantized(const OnnxCall& call, Tensor x, const Scaling& s) {
  if (!s.zero.defined()) return elementwise(call, {x, s.scale}, [](Number x, Number scale) { return x * scale; });
  return elementwise(
      call, {x, s.scale, s.zero}, [](Number x, Number scale, Number zero) { return (x - zero) * scale; });
}

Tensor dynamically_rounded(OnnxCall& call, Tensor x) {
  const Scaling scaling = dynamic_scaling(call, x);
  return dequantized(call, quantized(call, x, scaling, {0, 255}), scaling);
}

OnnxOperatorRows quantized_operators() {
  return {
      {"ConvInteger", conv_integer, "sums beyond 2^24 are rounded to floats"},
      {"DequantizeLinear", dequantize_linear, "of 8, 16 and 32 bits", {1, 2}},
      {"DynamicQuantizeLinear", dynamic_quantize_linear},
      {"MatMulInteger", matmul_integer, "of matrices"},
      {"QLinearConv", qlinear(qlinear_conv, 6, 1), "", {1, 4, 6}},
      {"QLinearMatMul", qlinear(qlinear_matmul, 6, -1), "of matrices", {1, 4, 6}},
      {"QuantizeLinear", quantize_linear, "to 8, 16 and 32 bits", {1, 2}},
      {"com.microsoft.QGemm", qlinear(qgemm, 7, 1, true), "", {1, 4, 7}},
      {"com.microsoft.QLinearAdd", qlinear(of_two<Scalar::kAdd>, 6, 0), "", {1, 4, 6}},
      {"com.microsoft.QLinearGlobalAveragePool", qlinear(global_average_pool, 3, 0), "with channels first", {1, 3}},
      {"com.microsoft.QLinearMul", qlinear(of_two<Scalar::kMul>, 6, 0), "", {1, 4, 6}},
  };
}
}  // namespace linnet
