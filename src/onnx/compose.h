// Compositions that many ONNX operators share.
#pragma once
#include <functional>
#include <vector>

#include "onnx/call.h"
#include "engine/ops/pointwise/expression_builder.h"

namespace linnet::compose {

using E = ExpressionBuilder;
using Ref = ExpressionBuilder::Ref;
using Formula = std::function<Ref(E& e, const std::vector<Ref>& x)>;

// The shape that numpy broadcasts these to. User error naming the call where they do not fit.
Shape broadcast_shape(const OnnxCall& call, const std::vector<Shape>& shapes);
// x repeated to a shape that it broadcasts to.
Tensor expand(Tensor x, const Shape& shape);
// A formula of each element, operands broadcast.
Tensor elementwise(const OnnxCall& call, std::vector<Tensor> x, const Formula& formula);

Tensor add(const OnnxCall& call, Tensor a, Tensor b);

// Elements along an axis in the order of `indices`, each in [0, size).
Tensor take(Tensor x, int axis, const std::vector<int64_t>& indices);
// Elements start, start + step, ... along an axis, `count` of them; step >= 1.
Tensor every(Tensor x, int axis, int64_t start, int64_t step, int64_t count);
// `before` and `after` elements of `value` along an axis; negative ones cut off.
Tensor pad(Tensor x, int axis, int64_t before, int64_t after, double value);
Tensor join(const std::vector<Tensor>& parts, int axis);
// One axis behind all others, or back.
Tensor axis_to_end(Tensor x, int axis);
Tensor axis_from_end(Tensor x, int axis);
// x with the axes in another order; neighbors of such moves are joined.
Tensor move_axes(Tensor x, const std::vector<int>& order);
// Between [N, C, ...], as ONNX has images, and [N, ..., C], as ops here have them.
Tensor channels_last(Tensor x);
Tensor channels_first(Tensor x);
std::vector<int> inverse(const std::vector<int>& order);

// [..., n] -> [..., 1] by a function of two numbers that is associative, such as max.
Tensor fold_last(Tensor x, const std::function<Tensor(Tensor, Tensor)>& join_two);
Tensor maximum(Tensor a, Tensor b);
Tensor minimum(Tensor a, Tensor b);
// [..., n] -> [..., 1]
Tensor sum_last(Tensor x);
Tensor mean_last(Tensor x);

// Formulas.
Ref truncated(E& e, Ref x);  // towards zero
Ref negated_truth(E& e, Ref x);

}  // namespace linnet::compose
