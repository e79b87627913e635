// Operations made of others, and those of one element that model code of the library does not use.
#include "linnet/math.h"

#include <array>
#include <string>
#include <vector>

#include "base/error.h"
#include "api/cpp/zeros.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/graph_of.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pixels/pixels.h"
#include "engine/ops/pointwise/expression_builder.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/pointwise/scalar_functions.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
namespace {

Shape last_to_one(const Tensor& x) {
  Shape shape = x.shape();
  shape.set(-1, 1);
  return shape;
}

int64_t checked_size(const At& x, int axis, const char* op) {
  const Shape shape = x.value.shape();
  if (axis < -shape.rank() || axis >= shape.rank())
    throw Error(ErrorKind::kShape,
                x.where.text() + ": " + op + ": there is no axis " + std::to_string(axis) + " in " + shape.text());
  return shape[axis];
}

}  // namespace

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
Tensor pow(At x, double exponent) { return apply_scalar(Scalar::kPow, x, exponent); }

Tensor where(At condition, Tensor a, Tensor b) { return apply_scalar(Scalar::kSelect, condition, a, b); }

Tensor clamp(At x, double low, double high) {
  if (!(low <= high)) {
    throw Error(ErrorKind::kUser, x.where.text() + ": clamp: the lower bound " + std::to_string(low) +
                                      " is not at most the upper bound " + std::to_string(high));
  }
  ExpressionBuilder e;
  const auto bounded = e.apply(Scalar::kMax, e.input(0), e.constant(low));
  return pointwise(e.finish(e.apply(Scalar::kMin, bounded, e.constant(high))), std::array{x.value}, x.where);
}

namespace {

// x as [outer, inner, n], where n is the size of the axis.
struct AxisLast {
  Tensor x;
  Shape without;  // the shape of x without the axis
};

AxisLast axis_last(At x, int axis) {
  const Shape shape = x.value.shape();
  const int64_t size = checked_size(x, axis, "reduce");
  if (axis < 0) axis += shape.rank();
  Shape without;
  for (int i = 0; i < shape.rank(); ++i)
    if (i != axis) without.push_back(shape[i]);
  const int64_t outer = shape.elements(0, axis), inner = shape.elements(axis + 1, shape.rank());
  const Tensor groups = reshape(x, {outer, size, inner});
  const Tensor last = inner == 1 ? groups : permute(At(groups, x.where), {0, 2, 1});
  return {reshape(At(last, x.where), {outer, inner, size}), without};
}

Tensor sum_last(At x) { return sum_to(x, last_to_one(x.value)); }

}  // namespace

Tensor sum(At x) { return sum_to(x, {}); }

Tensor sum(At x, int axis) {
  const AxisLast moved = axis_last(x, axis);
  return reshape(At(sum_last(At(moved.x, x.where)), x.where), moved.without);
}

Tensor mean(At x) { return At(sum(x), x.where) * (1 / static_cast<double>(x.value.shape().elements())); }

Tensor mean(At x, int axis) {
  return At(sum(x, axis), x.where) * (1 / static_cast<double>(checked_size(x, axis, "mean")));
}

// max_last() is a constant to the gradient; the mean of the elements that are equal to it has the same value.
Tensor max(At x, int axis) {
  const auto at = [&](Tensor value) { return At(value, x.where); };
  const AxisLast moved = axis_last(x, axis);
  const Tensor largest = equal(at(moved.x), max_last(at(moved.x)));
  const Tensor zeros = at(largest) * 0.0;
  const Tensor chosen = where(at(largest), moved.x, zeros);
  return reshape(at(at(sum_last(at(chosen))) / sum_last(at(largest))), moved.without);
}

Tensor min(At x, int axis) { return -At(max(At(-x, x.where), axis), x.where); }

Tensor log_softmax(At x) { return x - log_sum_exp_last(x); }

Tensor avg_pool(At x, int64_t size) {
  const auto at = [&](Tensor value) { return At(value, x.where); };
  const Shape shape = x.value.shape();
  if (shape.rank() != 4 || size < 1 || size > shape[1] || size > shape[2])
    throw Error(ErrorKind::kShape, x.where.text() + ": avg_pool: windows of " + std::to_string(size) + " x " +
                                       std::to_string(size) + " do not fit images of shape " + shape.text() +
                                       ", expected [N, H, W, C]");
  const int64_t rows = shape[1] / size, columns = shape[2] / size;
  const Tensor whole = slice(at(slice(x, 1, 0, rows * size)), 2, 0, columns * size);
  const Tensor by_row = sum(at(reshape(at(whole), {shape[0] * rows, size, columns * size * shape[3]})), 1);
  const Tensor windows = sum(at(reshape(at(by_row), {shape[0] * rows * columns, size, shape[3]})), 1);
  return at(reshape(at(windows), {shape[0], rows, columns, shape[3]})) * (1 / static_cast<double>(size * size));
}

Tensor global_avg_pool(At x) {
  const Shape shape = x.value.shape();
  if (shape.rank() != 4)
    throw Error(ErrorKind::kShape, x.where.text() + ": global_avg_pool: got a tensor of shape " + shape.text() +
                                       ", expected [N, H, W, C]");
  return mean(At(reshape(x, {shape[0], shape[1] * shape[2], shape[3]}), x.where), 1);
}

Tensor binary_cross_entropy_sum(At logits, Tensor targets) {
  return sum(At(At(softplus(logits), logits.where) - logits * targets, logits.where));
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
  if (parts.empty()) throw Error(ErrorKind::kShape, where.text() + ": concat: there are no tensors");
  return concat(At(parts[0], where), std::span(parts).subspan(1), axis);
}

Tensor scale_images(At x, const std::vector<double>& mean, const std::vector<double>& deviation) {
  return scale_pixels(x, pixel_scaling(checked_size(x, -1, "scale_images"), mean, deviation));
}

Tensor count_targets(At targets) { return count_targets(targets, DType::kF32); }

}  // namespace linnet
