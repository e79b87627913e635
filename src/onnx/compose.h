// What files of operators share: compositions, and the rows of the table that onnx_operators() (call.h) joins.
#pragma once
#include <functional>
#include <optional>
#include <vector>
#include "engine/ir/op.h"
#include "engine/kernels/quantized/products.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/formula.h"
#include "engine/ops/reduce/reduce.h"
#include "onnx/call.h"

namespace linnet::compose {
// The shape that numpy broadcasts these to. User error naming the call if they do not fit.
Shape broadcast_shape(const OnnxCall& call, const std::vector<Shape>& shapes);
// A formula of each element, with operands broadcast.
using Formula = std::function<Number(const std::vector<Number>& x)>;
Tensor elementwise_of(const OnnxCall& call, std::vector<Tensor> x, const Formula& formula);
// The same with an argument per operand: elementwise(call, {a, b}, [](Number a, Number b) { return a - b; }). The
// formula may take the call as last argument, for attributes.
template <size_t n, class F> Tensor elementwise(const OnnxCall& call, const Tensor (&x)[n], const F& formula) {
  return elementwise_of(call, {x, x + n}, [&](const std::vector<Number>& v) {
    return [&]<size_t... i>(std::index_sequence<i...>)->Number {
      if constexpr (std::is_invocable_v<F, decltype(v[i])..., const OnnxCall&>) return formula(v[i]..., call);
      else return formula(v[i]...);
    }
    (std::make_index_sequence<n>());
  });
}

// Operators that are a formula of their operands. The result has the first's type, or `element`.
template <class F> OnnxOperator unary(F formula, OnnxElement element = OnnxElement::kUndefined) {
  return [=](OnnxCall& call) {
    const OnnxElement result = element == OnnxElement::kUndefined ? call.element() : element;
    call.set(0, elementwise(call, {call.tensor(0)}, formula), result);
  };
}
template <class F> OnnxOperator binary(F formula, OnnxElement element = OnnxElement::kUndefined) {
  return [=](OnnxCall& call) {
    const OnnxElement result = element == OnnxElement::kUndefined ? call.element() : element;
    call.set(0, elementwise(call, {call.tensor(0), call.tensor(1)}, formula), result);
  };
}

Tensor add(const OnnxCall& call, Tensor a, Tensor b);

// Reshapes one number per channel to broadcast to [N, C, ...] of `rank` axes.
Tensor by_channel(Tensor values, int rank);

// Elements along an axis by `indices`, each in [0, size).
Tensor take(Tensor x, int axis, const std::vector<int64_t>& indices);
Tensor reversed(Tensor x, int axis);
// Elements start, start + step, ..., `count` of them; step >= 1.
Tensor every(Tensor x, int axis, int64_t start, int64_t step, int64_t count);
Tensor repeat_each(Tensor x, int axis, int64_t times);  // each element `times` times
// Adds `before` and `after` elements of `value` along an axis; negative counts cut off.
Tensor pad(Tensor x, int axis, int64_t before, int64_t after, double value);
Tensor join(const std::vector<Tensor>& parts, int axis);
Tensor axis_to_front(Tensor x, int axis);
// A tensor with axes in another order: axis i is axis order[i] of `before`. Convolutions have channels last, so images
// between them are such; computing with `before` moves no data.
struct Moved {
  Tensor before;
  std::vector<int> order;
};
std::optional<Moved> moved(Tensor x);
// x in another shape, if possible from before an earlier reshape, or by joining or dividing axes before a move.
Tensor reshaped(Tensor x, const Shape& shape);
// sum_to() or max_to() over the named axes, which keep the size 1; of a moved tensor before its move.
Tensor reduced(Tensor x, const std::vector<bool>& axes, Tensor (*reduce)(At x, const Shape& shape));
// Moves an axis behind all others, or back.
Tensor axis_to_end(Tensor x, int axis);
Tensor axis_from_end(Tensor x, int axis);
// x with the axes in another order; consecutive moves are joined.
Tensor move_axes(Tensor x, const std::vector<int>& order);
// Between [N, C, ...], ONNX's form of images, and [N, ..., C], that of ops here.
Tensor channels_last(Tensor x);
Tensor channels_first(Tensor x);

// User error for an axis that does not exist.
std::vector<bool> named_axes(const OnnxCall& call, const std::vector<int64_t>& axes, int rank);
// Calls `visit` with the index of each element, in order.
void each_index(const Shape& shape, const std::function<void(const std::vector<int64_t>& index)>& visit);

Tensor maximum(Tensor a, Tensor b);
Tensor mean_last(Tensor x);
}  // namespace linnet::compose

namespace linnet {
using compose::elementwise;

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
OnnxOperatorRows shape_operators();

// Products of 8-bit integers; weight and the other operand's scale and zero point are constants. Empty: other operands.

// a W, or a W^T with `trans_b`, of floats from 8-bit numbers (TracedQuantization): a [..., K] with one scale, W [K, N]
// of the file with one scale or one per output channel.
std::optional<Tensor> quantized_product(OnnxCall& call, const TracedValue& a, const TracedValue& b, bool trans_b);
// x [N, C, ...] convolved with the file's weight [O, C, ...], over one or two axes, without groups: [N, ..., O].
// Padding is zero floats.
std::optional<Tensor> quantized_convolution(
    OnnxCall& call, const TracedValue& x, const TracedValue& weight, std::vector<WindowAxis> axes);

// Of whole numbers: value = (code - zero) * scale, computed in floats.
struct Scaling {
  Tensor scale, zero;  // zero may be undefined
};
Tensor dequantized(const OnnxCall& call, Tensor x, const Scaling& s);
Tensor dynamically_rounded(OnnxCall& call, Tensor x);  // to uint8 and back, with DynamicQuantizeLinear's scale
}  // namespace linnet
