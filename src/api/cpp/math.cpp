#include "linnet/math.h"
#include <algorithm>
#include <numeric>
#include "api/cpp/helpers.h"
#include "base/error.h"
#include "engine/ir/op.h"
#include "engine/ops/conv2d/conv2d.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/formula.h"
#include "engine/ops/pool/pool.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/passes/passes.h"
#include "models/nn/trace.h"
#include "onnx/einsum.h"

namespace linnet {
namespace {
// The size of an axis; Error(kShape) naming the line and the function if x has no such axis.
int64_t checked_size(const At& x, int axis, const char* op) {
  const Shape shape = x.value.shape();
  if (axis < -shape.rank() || axis >= shape.rank()) fail_shape(x, op, ": there is no axis ", axis, " in ", shape);
  return shape[axis];
}

void check_floats(At x, const char* function) {
  checked_size(x, -1, function);
  if (!is_float(x.value.type().dtype)) fail_shape(x, function, ": got ", x.value.type(), ", expected floats");
}

// The elements of x at these flat indices.
Tensor pick(At x, Tensor places) {
  const Tensor all = reshape(x, {x.value.shape().elements()});
  return gather(At(all, x.where), places);
}

// Of a reduction: the shapes with the size 1 along the axes and without these, and all axes, with these last.
struct Axes {
  Shape kept, without;
  std::vector<int> last;
};

Axes checked_axes(At x, const std::vector<int>& axes, const char* op) {
  const Shape shape = x.value.shape();
  std::vector<bool> named(shape.rank());
  Axes result{.kept = shape};
  for (const int axis : axes) {
    checked_size(x, axis, op);
    const int from_start = axis < 0 ? axis + shape.rank() : axis;
    if (named[from_start]) fail_shape(x, op, ": axis ", axis, " is given twice");
    named[from_start] = true;
    result.kept.set(from_start, 1);
  }
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (!named[axis]) result.without.push_back(shape[axis]);
  result.last = named_axes_last(named);
  return result;
}

// Moves `axis` of x to the end, where `function` reduces it.
template <class Function> Tensor reduce_along(At x, int axis, const char* op, const Function& function) {
  const Axes checked = checked_axes(x, {axis}, op);
  const Tensor rows = std::ranges::is_sorted(checked.last) ? x.value : permute(x, checked.last);
  return reshape(At(function(At(rows, x.where)), x.where), checked.without);
}

// Moves `axis` of x to the end, applies `function`, and moves it back.
template <class Function> Tensor along(At x, int axis, const char* op, const Function& function) {
  checked_size(x, axis, op);
  const int last = x.value.shape().rank() - 1;
  if (axis < 0) axis += last + 1;
  if (axis == last) return function(x);
  std::vector<int> order = numbers_below<int>(static_cast<size_t>(last) + 1);
  std::swap(order[axis], order.back());
  return permute(At(function(At(permute(x, order), x.where)), x.where), order);
}

// In x's graph and element type, so that tests of ops can use it too.
Tensor positions(At x, int64_t count, double first) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), static_cast<float>(first));
  const DType dtype = is_float(x.value.type().dtype) ? x.value.type().dtype : DType::kF32;
  return cast(At(literal(*graph_of(x), {DType::kF32, {count}}, values.data(), x.where), x.where), dtype);
}

// [to, from]: the weight of each of `from` pixels in each of `to`.
std::vector<float> resize_shares(int64_t from, int64_t to, Interpolation how) {
  std::vector<float> shares(from * to);
  for (int64_t i = 0; i < to; ++i) {
    float* row = shares.data() + i * from;
    if (how == Interpolation::kNearest) {
      row[i * from / to] = 1;
      continue;
    }
    const double center = (static_cast<double>(i) + 0.5) * static_cast<double>(from) / static_cast<double>(to) - 0.5;
    const double at = std::clamp(center, 0.0, static_cast<double>(from - 1));
    const auto low = static_cast<int64_t>(at), high = std::min(low + 1, from - 1);
    row[low] += static_cast<float>(1 - (at - static_cast<double>(low)));
    row[high] += static_cast<float>(at - static_cast<double>(low));
  }
  return shares;
}

// Of axis 1 of x [N, from, D]. The shares are repeated for each of N where that takes less than moving the axis.
Tensor resize_axis(At x, int64_t to, Interpolation how) {
  const Shape s = x.value.shape();
  if (s[1] == to) return x.value;
  const auto at = [&](Tensor value) { return At(value, x.where); };
  const std::vector<float> shares = resize_shares(s[1], to, how);
  const Tensor traced = literal(*graph_of(x), {DType::kF32, {to, s[1]}}, shares.data(), x.where);
  const Tensor given = cast(at(traced), x.value.type().dtype);
  if (to * s[1] <= (to + s[1]) * s[2]) return matmul(at(broadcast_to(at(given), {s[0], to, s[1]})), x.value);
  return permute(at(matmul(at(permute(x, {0, 2, 1})), given, false, true)), {0, 2, 1});
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
Tensor pow(At x, double exponent) {
  // A constant: the derivative's formula, 0 x^-1, is NaN at 0.
  if (exponent == 0) return fill(*x.value.graph, x.value.type(), 1, x.where);
  return apply_scalar(Scalar::kPow, x, exponent);
}

Tensor where(At condition, Tensor a, Tensor b) { return apply_scalar(Scalar::kSelect, condition, a, b); }

Tensor clamp(At x, double low, double high) {
  if (!(low <= high)) fail_user(x.where, ": clamp: the lower bound ", low, " is not at most the upper bound ", high);
  FormulaBuilder f;
  const Number least = f.constant(low), bounded = max(f[0], least);
  return f.finish(min(bounded, high), std::array{x.value}, x.where);
}

Tensor leaky_relu(At x, double slope) {
  FormulaBuilder f;
  const Number v = f[0], below = v * slope;
  return f.finish(select(v > 0, v, below), std::array{x.value}, x.where);
}

// Avoids exp of positive values, which may be infinite with a NaN gradient.
Tensor elu(At x, double alpha) {
  FormulaBuilder f;
  const Number v = f[0], zero = f.constant(0), one = f.constant(1), below = (exp(min(v, zero)) - one) * alpha;
  return f.finish(select(v > zero, v, below), std::array{x.value}, x.where);
}

Tensor selu(At x) { return At(elu(x, 1.6732632423543772), x.where) * 1.0507009873554805; }

// With c = min(|d|, delta): c (|d| - c / 2).
Tensor huber(At a, Tensor b, double delta) {
  const At size(abs(At(a - b, a.where)), a.where);
  FormulaBuilder f;
  const Number d = f[0], c = min(d, delta);
  return f.finish(c * (d - c * 0.5), std::array{size.value}, a.where);
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
  const Tensor ones = fill(*graph_of(x), {x.value.type().dtype, {shape[3], size, size, 1}}, 1, x.where);
  return at(conv2d(x, ones, size, 0, 1, shape[3])) * (1 / static_cast<double>(size * size));
}

Tensor global_avg_pool(At x) {
  const Shape shape = x.value.shape();
  if (shape.rank() != 4) fail_shape(x, "global_avg_pool: got a tensor of shape ", shape, ", expected [N, H, W, C]");
  return mean(At(reshape(x, {shape[0], shape[1] * shape[2], shape[3]}), x.where), 1);
}

Tensor gather(At x, Tensor ids) {
  const Shape shape = x.value.shape();
  const int64_t rows = checked_size(x, 0, "gather");
  const Shape result = with_axes(ids.shape(), Shape(shape.sizes().subspan(1)));
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

Tensor sum(At x) { return sum_to(x, {}); }

Tensor sum(At x, int axis) { return sum(x, std::vector{axis}); }

Tensor sum(At x, const std::vector<int>& axes, bool keep) {
  const Axes checked = checked_axes(x, axes, "sum");
  return reshape(At(sum_to(x, checked.kept), x.where), keep ? checked.kept : checked.without);
}

Tensor mean(At x) { return At(sum(x), x.where) * (1 / static_cast<double>(x.value.shape().elements())); }

Tensor mean(At x, int axis) { return mean(x, std::vector{axis}); }

Tensor mean(At x, const std::vector<int>& axes, bool keep) {
  int64_t count = 1;
  for (const int axis : axes) count *= checked_size(x, axis, "mean");
  return At(sum(x, axes, keep), x.where) * (1 / static_cast<double>(count));
}

Tensor variance(At x, const std::vector<int>& axes, bool keep) {
  return mean(At(square(At(x - mean(x, axes, true), x.where)), x.where), axes, keep);
}

Tensor max(At x, int axis) { return max(x, std::vector{axis}); }

Tensor max(At x, const std::vector<int>& axes, bool keep) {
  const Axes checked = checked_axes(x, axes, "max");
  return reshape(At(max_to(x, checked.kept), x.where), keep ? checked.kept : checked.without);
}

Tensor min(At x, int axis) { return min(x, std::vector{axis}); }
Tensor min(At x, const std::vector<int>& axes, bool keep) { return -At(max(At(-x, x.where), axes, keep), x.where); }

Tensor argmax(At x, int axis) { return reduce_along(x, axis, "argmax", argmax_last); }
Tensor log_sum_exp(At x, int axis) { return reduce_along(x, axis, "log_sum_exp", log_sum_exp_last); }

Tensor softmax(At x, int axis) {
  return along(x, axis, "softmax", [](At rows) { return softmax(rows); });
}

Tensor log_softmax(At x) { return log_softmax(x, -1); }

Tensor log_softmax(At x, int axis) {
  return along(x, axis, "log_softmax", [](At rows) { return rows - log_sum_exp_last(rows); });
}

Tensor argsort(At x, bool descending) {
  check_floats(x, "argsort");
  return argsort_last(x, descending);
}

Tensor sort(At x, bool descending) {
  check_floats(x, "sort");
  return pick(x, argsort_last(x, descending, true));
}

std::pair<Tensor, Tensor> top_k(At x, int64_t count) {
  check_floats(x, "top_k");
  if (count < 1 || count > x.value.dim(-1)) fail_shape(x, "top_k: ", count, " of the last axis of ", x.value.shape());
  return {pick(x, argsort_last(x, true, true, count)), argsort_last(x, true, false, count)};
}

Tensor scatter_add(At values, Tensor ids, int64_t rows) {
  Shape expected = ids.shape();
  expected.push_back(checked_size(values, -1, "scatter_add"));
  if (rows < 1 || ids.type().dtype != DType::kI32 || values.value.shape() != expected)
    fail_shape(values, "scatter_add: values ", values.value.type(), ", ids ", ids.type(), " and ", rows,
        " rows, expected [..., D], i32 [...] and at least 1");
  return op_result(kEmbeddingGrad, values, {ids}, EmbeddingGradAttrs{.vocab_size = rows});
}

Tensor arange(int64_t count, DType dtype, SourceLine where) {
  if (count < 1 || count > INT32_MAX || (dtype != DType::kF32 && dtype != DType::kI32))
    fail_user(
        where, ": arange: ", count, " numbers of type ", dtype_name(dtype), "; there are at least one, f32 or i32");
  Trace& trace = Trace::current();
  const auto numbers = [&]<class T>(DType type) {
    return literal(trace.graph(), {type, {count}}, numbers_below<T>(count).data(), where);
  };
  if (dtype == DType::kI32) return numbers.template operator()<int32_t>(DType::kI32);
  return cast(At(numbers.template operator()<float>(DType::kF32), where), trace.options().dtype);
}

Tensor tril(At x, int64_t diagonal) {
  const int64_t rows = checked_size(x, -2, "tril"), columns = checked_size(x, -1, "tril");
  const At row(reshape(At(positions(x, rows, static_cast<double>(diagonal)), x.where), {rows, 1}), x.where);
  const Tensor seen = greater_equal(row, positions(x, columns, 0));
  return where(At(seen, x.where), x.value, zeros(x.value, {}));
}

Tensor sequence_mask(At lengths, int64_t size) {
  Shape shape = lengths.value.shape();
  if (size < 1 || lengths.value.type().dtype != DType::kI32)
    fail_shape(
        lengths, "sequence_mask: lengths ", lengths.value.type(), " and size ", size, ", expected i32 and at least 1");
  shape.push_back(1);
  const Tensor counts = reshape(At(cast(lengths, DType::kF32), lengths.where), shape);
  return greater(At(counts, lengths.where), positions(lengths, size, 0));
}

Tensor pad(At x, int axis, int64_t before, int64_t after, double value) {
  checked_size(x, axis, "pad");
  if (before < 0 || after < 0)
    fail_shape(x, "pad: by ", before, " and ", after, " elements, which must not be negative");
  return padded(x, axis, before, after, value);
}

Tensor upsample(At x, int64_t factor) {
  const auto at = [&](Tensor value) { return At(value, x.where); };
  const Shape s = x.value.shape();
  if (s.rank() != 4 || factor < 1)
    fail_shape(x, "upsample: ", s, " by ", factor, ", expected [N, H, W, C] and at least 1");
  const Tensor apart = reshape(x, {s[0], s[1], 1, s[2], 1, s[3]});
  const Tensor repeated = broadcast_to(at(apart), {s[0], s[1], factor, s[2], factor, s[3]});
  return reshape(at(repeated), {s[0], s[1] * factor, s[2] * factor, s[3]});
}

Tensor resize(At x, int64_t height, int64_t width, Interpolation how) {
  const Shape s = x.value.shape();
  if (s.rank() != 4 || height < 1 || width < 1 || !is_float(x.value.type().dtype))
    fail_shape(x, "resize: ", x.value.type(), " to ", height, " x ", width,
        ", expected floats [N, H, W, C] and at least 1 x 1");
  const auto at = [&](Tensor value) { return At(value, x.where); };
  const Tensor columns = resize_axis(at(reshape(x, {s[0] * s[1], s[2], s[3]})), width, how);
  const Tensor rows = resize_axis(at(reshape(at(columns), {s[0], s[1], width * s[3]})), height, how);
  return reshape(at(rows), {s[0], height, width, s[3]});
}

Tensor einsum(const std::string& equation, const std::vector<Tensor>& operands, SourceLine where) {
  const Einsum::Steps steps{.permute = [&](Tensor x, const auto& order) { return permute(At(x, where), order); },
      .sum = [&](Tensor x, const auto& axes) { return sum(At(x, where), axes); },
      .fail = [&](const auto& problem) { fail_shape(where, "einsum(\"", equation, "\"): ", problem); }};
  return Einsum(equation, operands, steps, where).compute();
}
}  // namespace linnet
