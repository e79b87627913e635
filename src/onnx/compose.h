// Compositions that many ONNX operators share.
#pragma once
#include <functional>
#include <optional>
#include <vector>
#include "engine/ops/pointwise/expression_builder.h"
#include "onnx/call.h"

namespace linnet::compose {

// A number of a formula: an operand's element, a constant, or what is computed of others. Truth values are 0 and 1.
class Number {
 public:
  Number(double constant) : constant_(constant) {}  // implicit: formulas mix both
  Number(ExpressionBuilder& builder, ExpressionBuilder::Ref ref) : builder_(&builder), ref_(ref) {}
  ExpressionBuilder* builder() const { return builder_; }  // null: a constant
  ExpressionBuilder::Ref in(ExpressionBuilder& builder) const { return builder_ ? ref_ : builder.constant(constant_); }

 private:
  ExpressionBuilder* builder_ = nullptr;
  ExpressionBuilder::Ref ref_ = -1;
  double constant_ = 0;
};

// At least one of `in` is no constant.
Number apply(Scalar function, std::initializer_list<Number> in);
inline Number operator+(Number a, Number b) { return apply(Scalar::kAdd, {a, b}); }
inline Number operator-(Number a, Number b) { return apply(Scalar::kSub, {a, b}); }
inline Number operator*(Number a, Number b) { return apply(Scalar::kMul, {a, b}); }
inline Number operator/(Number a, Number b) { return apply(Scalar::kDiv, {a, b}); }
inline Number operator>(Number a, Number b) { return apply(Scalar::kGreater, {a, b}); }
inline Number operator-(Number x) { return apply(Scalar::kNeg, {x}); }
inline Number operator!(Number x) { return 1 - x; }
inline Number equal(Number a, Number b) { return apply(Scalar::kEqual, {a, b}); }
inline Number select(Number condition, Number yes, Number no) { return apply(Scalar::kSelect, {condition, yes, no}); }
inline Number min(Number a, Number b) { return apply(Scalar::kMin, {a, b}); }
inline Number max(Number a, Number b) { return apply(Scalar::kMax, {a, b}); }
inline Number pow(Number a, Number b) { return apply(Scalar::kPow, {a, b}); }
inline Number abs(Number x) { return apply(Scalar::kAbs, {x}); }
inline Number exp(Number x) { return apply(Scalar::kExp, {x}); }
inline Number floor(Number x) { return apply(Scalar::kFloor, {x}); }
inline Number log(Number x) { return apply(Scalar::kLog, {x}); }
inline Number round(Number x) { return apply(Scalar::kRound, {x}); }
inline Number rsqrt(Number x) { return apply(Scalar::kRsqrt, {x}); }
inline Number sigmoid(Number x) { return apply(Scalar::kSigmoid, {x}); }
inline Number sqrt(Number x) { return apply(Scalar::kSqrt, {x}); }
inline Number square(Number x) { return apply(Scalar::kSquare, {x}); }
inline Number tanh(Number x) { return apply(Scalar::kTanh, {x}); }
Number truncated(Number x);  // towards zero

// The shape that numpy broadcasts these to. User error naming the call where they do not fit.
Shape broadcast_shape(const OnnxCall& call, const std::vector<Shape>& shapes);
// x repeated to a shape that it broadcasts to.
Tensor expand(Tensor x, const Shape& shape);
// A formula of each element, operands broadcast.
using Formula = std::function<Number(const std::vector<Number>& x)>;
Tensor elementwise_of(const OnnxCall& call, std::vector<Tensor> x, const Formula& formula);
// The same with an argument for each operand: elementwise(call, {a, b}, [](Number a, Number b) { return a - b; }). The
// formula may have the call as a last argument, for attributes.
template <size_t n, class F>
Tensor elementwise(const OnnxCall& call, const Tensor (&x)[n], const F& formula) {
  return elementwise_of(call, {x, x + n}, [&](const std::vector<Number>& v) {
    return [&]<size_t... i>(std::index_sequence<i...>)->Number {
      if constexpr (std::is_invocable_v<F, decltype(v[i])..., const OnnxCall&>) return formula(v[i]..., call);
      else return formula(v[i]...);
    }
    (std::make_index_sequence<n>());
  });
}

// Operators that are a formula of their operands. The result has the type of the first, or `element`.
template <class F>
OnnxOperator unary(F formula, OnnxElement element = OnnxElement::kUndefined) {
  return [=](OnnxCall& call) {
    const OnnxElement result = element == OnnxElement::kUndefined ? call.element() : element;
    call.set(0, elementwise(call, {call.tensor(0)}, formula), result);
  };
}
template <class F>
OnnxOperator binary(F formula, OnnxElement element = OnnxElement::kUndefined) {
  return [=](OnnxCall& call) {
    const OnnxElement result = element == OnnxElement::kUndefined ? call.element() : element;
    call.set(0, elementwise(call, {call.tensor(0), call.tensor(1)}, formula), result);
  };
}

Tensor add(const OnnxCall& call, Tensor a, Tensor b);

// One number for each channel beside [N, C, ...] of `rank` axes.
Tensor by_channel(Tensor values, int rank);

// Elements along an axis in the order of `indices`, each in [0, size).
Tensor take(Tensor x, int axis, const std::vector<int64_t>& indices);
// Elements start, start + step, ... along an axis, `count` of them; step >= 1.
Tensor every(Tensor x, int axis, int64_t start, int64_t step, int64_t count);
// Each element along an axis so many times.
Tensor repeat_each(Tensor x, int axis, int64_t times);
// `before` and `after` elements of `value` along an axis; negative ones cut off.
Tensor pad(Tensor x, int axis, int64_t before, int64_t after, double value);
Tensor join(const std::vector<Tensor>& parts, int axis);
Tensor axis_to_front(Tensor x, int axis);
// What only has its axes in another order: axis i is axis order[i] of `before`. Images are such between convolutions,
// which have channels last; what can be computed of `before` moves no data.
struct Moved {
  Tensor before;
  std::vector<int> order;
};
std::optional<Moved> moved(Tensor x);
// x under another shape. What was reshaped before may have had that shape; of what was moved, axes are divided and
// joined before the move where they lie side by side there.
Tensor reshaped(Tensor x, const Shape& shape);
// The sum over all axes of an image [N, C, ...] but the first two, times `factor`: [N, 1, C]. None where x is not one
// with channels last.
std::optional<Tensor> spatial_sum(Tensor x, double factor);
// One axis behind all others, or back.
Tensor axis_to_end(Tensor x, int axis);
Tensor axis_from_end(Tensor x, int axis);
// x with the axes in another order; neighbors of such moves are joined.
Tensor move_axes(Tensor x, const std::vector<int>& order);
// Between [N, C, ...], as ONNX has images, and [N, ..., C], as ops here have them.
Tensor channels_last(Tensor x);
Tensor channels_first(Tensor x);
std::vector<int> inverse(const std::vector<int>& order);

// The axes that a list names. User error for one that is not there.
std::vector<bool> named_axes(const OnnxCall& call, const std::vector<int64_t>& axes, int rank);
// All axes, those that are named behind the others.
std::vector<int> named_axes_last(const std::vector<bool>& named);
std::vector<int64_t> all_axes(int rank);  // 0, 1, ...
// Calls `visit` with the index of each element of a shape, in order.
void each_index(const Shape& shape, const std::function<void(const std::vector<int64_t>& index)>& visit);

// [..., n] -> [..., 1] by a function of two numbers that is associative, such as max.
Tensor fold_last(Tensor x, const std::function<Tensor(Tensor, Tensor)>& join_two);
Tensor maximum(Tensor a, Tensor b);
Tensor minimum(Tensor a, Tensor b);
// [..., n] -> [..., 1]
Tensor sum_last(Tensor x);
Tensor mean_last(Tensor x);

}  // namespace linnet::compose
