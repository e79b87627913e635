// Operators whose operands and results are whole numbers with scales and zero points of their own: the QLinear family
// of ONNX, and those of ONNX Runtime that its quantizer writes beside them.
#include "onnx/compose.h"
#include "onnx/operators.h"
#include "onnx/quantized_numbers.h"
#include "onnx/quantized_product.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"

namespace linnet {
namespace {

using compose::E;
using compose::elementwise;
using compose::Ref;

// Operands i, i + 1 and i + 2 (codes, scale and zero point) as floats that are known to come from bytes. A scale for
// each index is one of `axis`.
TracedValue floats_of(OnnxCall& call, size_t i, int axis) {
  const Tensor x = call.tensor(i, DType::kF32);
  TracedValue value{.tensor = dequantized(call, x, scaling_of(call, i + 1, i + 2, x.shape(), axis, 0))};
  if (auto known = quantization_of(call, i + 1, i + 2, call.element(i))) {
    known->axis = axis, known->codes = call.in(i).known;
    value.quantization = std::make_shared<TracedQuantization>(*known);
  }
  return value;
}

// y as the codes of operands `scale` and `scale` + 1.
void set_codes(OnnxCall& call, Tensor y, size_t scale, int axis) {
  const OnnxElement element = call.has(scale + 1) ? call.element(scale + 1) : call.element();
  call.set(0,
           quantized(call, y, scaling_of(call, scale, scale + 1, y.shape(), axis, 0), quantized_range(call, element)),
           element);
}

// a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point
void qlinear_matmul(OnnxCall& call) {
  const int rows = std::max(call.shape(0).rank() - 2, 0), columns = call.shape(3).rank() - 1;
  TracedValue a = floats_of(call, 0, rows);
  const TracedValue b = floats_of(call, 3, columns);
  const std::optional<Tensor> product = quantized_product(call, a, b, false);
  const Tensor y = product ? *product : whole_product(call, a.tensor, b.tensor);
  set_codes(call, y, 6, y.shape().rank() - 1);
}

// An int32 operand in steps of the product of the scales of operands 1 and 4, along an axis of y.
Tensor with_bias(OnnxCall& call, Tensor y, size_t bias, int axis) {
  const auto along = [&](size_t i) { return along_axis(call, call.tensor(i, DType::kF32), y.shape(), axis, 0); };
  return elementwise(call, {y, along(bias), along(1), along(4)}, [](E& e, const std::vector<Ref>& v) {
    return e.apply(Scalar::kAdd, v[0], e.apply(Scalar::kMul, v[1], e.apply(Scalar::kMul, v[2], v[3])));
  });
}

// x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, bias
void qlinear_conv(OnnxCall& call) {
  Tensor y = conv_of(call, floats_of(call, 0, 0), floats_of(call, 3, 0));
  if (call.has(8)) y = with_bias(call, y, 8, 1);
  set_codes(call, y, 6, 1);
}

// a, a_scale, a_zero_point, b, b_scale, b_zero_point, bias, y_scale, y_zero_point: without the last two, floats
void qgemm(OnnxCall& call) {
  const bool trans_a = call.integer("transA", 0) != 0, trans_b = call.integer("transB", 0) != 0;
  const TracedValue a = floats_of(call, 0, 0), b = floats_of(call, 3, trans_b ? 0 : 1);
  std::optional<Tensor> product;
  if (!trans_a) product = quantized_product(call, a, b, trans_b);
  Tensor y = product ? *product : matmul(a.tensor, b.tensor, trans_a, trans_b);
  if (call.has(6)) y = with_bias(call, y, 6, 1);
  if (const double alpha = call.real("alpha", 1); alpha != 1) y = y * alpha;
  if (call.has(7)) return set_codes(call, y, 7, 1);
  call.set(0, y, OnnxElement::kFloat);
}

// a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point
template <Scalar function>
void of_two(OnnxCall& call) {
  const Tensor y = elementwise(call, {floats_of(call, 0, 0).tensor, floats_of(call, 3, 0).tensor},
                               [](E& e, const std::vector<Ref>& v) { return e.apply(function, v[0], v[1]); });
  set_codes(call, y, 6, 0);
}

// x, x_scale, x_zero_point, y_scale, y_zero_point
void global_average_pool(OnnxCall& call) {
  if (call.integer("channels_last", 0) != 0) call.fail("channels_last is set");
  const Tensor x = floats_of(call, 0, 0).tensor;
  Shape shape = x.shape();
  if (shape.rank() < 3) call.fail("a tensor of shape " + shape.text());
  const Tensor y = compose::mean_last(reshape(x, {shape[0], shape[1], shape.elements(2, shape.rank())}));
  for (int axis = 2; axis < shape.rank(); ++axis) shape.set(axis, 1);
  set_codes(call, reshape(y, shape), 3, 0);
}

}  // namespace

void add_qlinear_operators(std::vector<OnnxOperatorRow>& rows) {
  const OnnxOperatorRow list[] = {
      {"QLinearConv", qlinear_conv},
      {"QLinearMatMul", qlinear_matmul, "of matrices"},
      {"com.microsoft.QGemm", qgemm},
      {"com.microsoft.QLinearAdd", of_two<Scalar::kAdd>},
      {"com.microsoft.QLinearGlobalAveragePool", global_average_pool, "with channels first"},
      {"com.microsoft.QLinearMul", of_two<Scalar::kMul>},
  };
  rows.insert(rows.end(), std::begin(list), std::end(list));
}

}  // namespace linnet
