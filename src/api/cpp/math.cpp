#include "linnet/math.h"
#include "api/cpp/helpers.h"
#include "engine/ir/op.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pixels/pixels.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/softmax/softmax.h"
#include "engine/passes/gradient.h"
#include "models/nn/trace.h"

namespace linnet {
Tensor zeros(Tensor like, const Shape& shape) { return fill(*graph_of(At(like)), {like.type().dtype, shape}, 0); }

Tensor operator-(At a, double b) { return apply_scalar(Scalar::kSub, a, b); }
Tensor operator/(At a, double b) { return apply_scalar(Scalar::kDiv, a, b); }
Tensor operator+(double a, At b) { return apply_scalar(Scalar::kAdd, b, a); }
Tensor operator-(double a, At b) { return apply_scalar(Scalar::kSub, a, b); }
Tensor operator*(double a, At b) { return apply_scalar(Scalar::kMul, b, a); }
Tensor operator/(double a, At b) { return apply_scalar(Scalar::kDiv, a, b); }
Tensor operator-(At x) { return apply_scalar(Scalar::kNeg, x); }
Tensor maximum(At a, Tensor b) { return apply_scalar(Scalar::kMax, a, b); }
Tensor minimum(At a, Tensor b) { return apply_scalar(Scalar::kMin, a, b); }
Tensor greater(At a, Tensor b) { return apply_scalar(Scalar::kGreater, a, b); }
Tensor equal(At a, Tensor b) { return apply_scalar(Scalar::kEqual, a, b); }
Tensor log(At x) { return apply_scalar(Scalar::kLog, x); }
Tensor sqrt(At x) { return apply_scalar(Scalar::kSqrt, x); }
Tensor abs(At x) { return apply_scalar(Scalar::kAbs, x); }
Tensor sin(At x) { return apply_scalar(Scalar::kSin, x); }
Tensor cos(At x) { return apply_scalar(Scalar::kCos, x); }
Tensor erf(At x) { return apply_scalar(Scalar::kErf, x); }
Tensor sigmoid(At x) { return apply_scalar(Scalar::kSigmoid, x); }
Tensor pow(At x, double exponent) {
  // A constant: the derivative's formula, 0 x^-1, is NaN at 0.
  if (exponent == 0) return fill(*x.value.graph, x.value.type(), 1, x.where);
  return apply_scalar(Scalar::kPow, x, exponent);
}

Tensor where(At condition, Tensor a, Tensor b) { return apply_scalar(Scalar::kSelect, condition, a, b); }

Tensor clamp(At x, double low, double high) {
  if (!(low <= high)) fail_user(x.where, ": clamp: the lower bound ", low, " is not at most the upper bound ", high);
  ExpressionBuilder e;
  const auto bounded = e.apply(Scalar::kMax, e.input(0), e.constant(low));
  return pointwise(e.finish(e.apply(Scalar::kMin, bounded, e.constant(high))), std::array{x.value}, x.where);
}

Tensor leaky_relu(At x, double slope) {
  ExpressionBuilder e;
  const auto v = e.input(0);
  const auto below = e.apply(Scalar::kMul, v, e.constant(slope));
  const auto is_above = e.apply(Scalar::kGreater, v, e.constant(0));
  return pointwise(e.finish(e.apply(Scalar::kSelect, is_above, v, below)), std::array{x.value}, x.where);
}

// Avoids exp of positive values, which may be infinite with a NaN gradient.
Tensor elu(At x, double alpha) {
  ExpressionBuilder e;
  const auto v = e.input(0), zero = e.constant(0);
  const auto grown = e.apply(Scalar::kSub, e.apply(Scalar::kExp, e.apply(Scalar::kMin, v, zero)), e.constant(1));
  const auto below = e.apply(Scalar::kMul, grown, e.constant(alpha));
  return pointwise(
      e.finish(e.apply(Scalar::kSelect, e.apply(Scalar::kGreater, v, zero), v, below)), std::array{x.value}, x.where);
}

Tensor selu(At x) { return At(elu(x, 1.6732632423543772), x.where) * 1.0507009873554805; }

// With c = min(|d|, delta): c (|d| - c / 2).
Tensor huber(At a, Tensor b, double delta) {
  const At size(abs(At(a - b, a.where)), a.where);
  ExpressionBuilder e;
  const auto d = e.input(0), c = e.apply(Scalar::kMin, d, e.constant(delta));
  const auto rest = e.apply(Scalar::kSub, d, e.apply(Scalar::kMul, c, e.constant(0.5)));
  return pointwise(e.finish(e.apply(Scalar::kMul, c, rest)), std::array{size.value}, a.where);
}

Tensor less(At a, Tensor b) { return greater(At(b, a.where), a.value); }
Tensor greater_equal(At a, Tensor b) { return maximum(At(greater(a, b), a.where), equal(a, b)); }
Tensor less_equal(At a, Tensor b) { return greater_equal(At(b, a.where), a.value); }
Tensor not_equal(At a, Tensor b) { return 1.0 - At(equal(a, b), a.where); }
Tensor logical_not(At x) { return apply_scalar(Scalar::kEqual, x, 0.0); }
Tensor logical_and(At a, Tensor b) {
  return logical_not(At(maximum(At(logical_not(a), a.where), logical_not(At(b, a.where))), a.where));
}
Tensor logical_or(At a, Tensor b) { return logical_not(At(logical_not(a) * logical_not(At(b, a.where)), a.where)); }

Tensor gradient(At y, Tensor x) { return gradients(y, std::vector{x})[0]; }

std::vector<Tensor> gradients(At y, const std::vector<Tensor>& x) {
  Graph* graph = graph_of(y);
  for (const Tensor& each : x) {
    graph_of(At(each, y.where));
    if (each.graph != graph || !is_float(each.type().dtype))
      fail_shape(y, "gradient: by ", each.type(), ", expected a tensor of floats of the same recording");
  }
  if (y.value.shape().elements() != 1 || !is_float(y.value.type().dtype))
    fail_shape(y, "gradient: of ", y.value.type(), ", expected a scalar; sum(y) makes one");
  return gradients(y.value, std::span(x));
}

Tensor avg_pool(At x, int64_t size) {
  const auto at = [&](Tensor value) { return At(value, x.where); };
  const Shape shape = x.value.shape();
  if (shape.rank() != 4 || size < 1 || size > shape[1] || size > shape[2])
    fail_shape(x, "avg_pool: windows of ", size, " x ", size, " do not fit images of shape ", shape,
        ", expected [N, H, W, C]");
  const int64_t rows = shape[1] / size, columns = shape[2] / size;
  const Tensor whole = slice(at(slice(x, 1, 0, rows * size)), 2, 0, columns * size);
  const Tensor by_row = sum(at(reshape(at(whole), {shape[0] * rows, size, columns * size * shape[3]})), 1);
  const Tensor windows = sum(at(reshape(at(by_row), {shape[0] * rows * columns, size, shape[3]})), 1);
  return at(reshape(at(windows), {shape[0], rows, columns, shape[3]})) * (1 / static_cast<double>(size * size));
}

Tensor global_avg_pool(At x) {
  const Shape shape = x.value.shape();
  if (shape.rank() != 4) fail_shape(x, "global_avg_pool: got a tensor of shape ", shape, ", expected [N, H, W, C]");
  return mean(At(reshape(x, {shape[0], shape[1] * shape[2], shape[3]}), x.where), 1);
}

Tensor gather(At x, Tensor ids) {
  const Shape shape = x.value.shape();
  const int64_t rows = checked_size(x, 0, "gather");
  Shape result = ids.shape();
  for (int axis = 1; axis < shape.rank(); ++axis) result.push_back(shape[axis]);
  const Tensor table = reshape(x, {rows, shape.elements(1, shape.rank())});
  return reshape(At(embedding(At(table, x.where), ids), x.where), result);
}

Tensor concat(const std::vector<Tensor>& parts, int axis, SourceLine where) {
  if (parts.empty()) fail_shape(where, "concat: there are no tensors");
  return concat(At(parts[0], where), std::span(parts).subspan(1), axis);
}

Tensor scale_images(At x, const std::vector<double>& mean, const std::vector<double>& deviation) {
  return scale_pixels(x, pixel_scaling(checked_size(x, -1, "scale_images"), mean, deviation));
}

Tensor count_targets(At targets) { return count_targets(targets, DType::kF32); }
}  // namespace linnet
