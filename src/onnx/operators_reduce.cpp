// Sums, maxima and the like over axes, and what is made of them: softmax, cumulative sums.
#include <algorithm>
#include <cmath>

#include "onnx/compose.h"
#include "onnx/operators.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/softmax/softmax.h"

namespace linnet {
namespace {

using compose::E;
using compose::elementwise;
using compose::Ref;

Tensor each(const OnnxCall& call, Tensor x, Scalar function) {
  return elementwise(call, {x}, [=](E& e, const std::vector<Ref>& v) { return e.apply(function, v[0]); });
}

enum class Kind { kSum, kMean, kMax, kMin, kProduct, kL1, kL2, kLogSum, kLogSumExp, kSumOfSquares };

// [rows, n] -> [rows, 1]
Tensor reduce_last(OnnxCall& call, Tensor x, Kind kind) {
  switch (kind) {
    case Kind::kSum:
      return compose::sum_last(x);
    case Kind::kMean:
      return compose::mean_last(x);
    case Kind::kMax:
      return compose::fold_last(x, compose::maximum);
    case Kind::kMin:
      return compose::fold_last(x, compose::minimum);
    case Kind::kProduct:
      return compose::fold_last(x, [](Tensor a, Tensor b) { return a.id == b.id ? square(a) : a * b; });
    case Kind::kL1:
      return compose::sum_last(each(call, x, Scalar::kAbs));
    case Kind::kL2:
      return each(call, compose::sum_last(square(x)), Scalar::kSqrt);
    case Kind::kLogSum:
      return each(call, compose::sum_last(x), Scalar::kLog);
    case Kind::kLogSumExp:
      return log_sum_exp_last(x);
    case Kind::kSumOfSquares:
      return compose::sum_last(square(x));
  }
  return x;
}

// What there is of no elements.
double of_nothing(OnnxCall& call, Kind kind) {
  if (call.element() == OnnxElement::kBool) return kind == Kind::kMin ? 1 : 0;
  if (kind == Kind::kMax) return -std::numeric_limits<double>::infinity();
  if (kind == Kind::kMin) return std::numeric_limits<double>::infinity();
  if (kind == Kind::kProduct) return 1;
  if (kind == Kind::kLogSum || kind == Kind::kLogSumExp) return -std::numeric_limits<double>::infinity();
  if (kind == Kind::kMean) call.fail("the mean of no elements");
  return 0;
}

template <Kind kind>
void reduce(OnnxCall& call) {
  const Shape shape = call.shape();
  const auto given = call.ints_or_list(1, "axes");
  const bool keep = call.integer("keepdims", 1) != 0, noop = call.integer("noop_with_empty_axes", 0) != 0;
  std::vector<bool> gone(static_cast<size_t>(shape.rank()));
  for (const int64_t axis : given.value_or(std::vector<int64_t>{}))
    gone[static_cast<size_t>(call.axis(axis, shape.rank()))] = true;
  if (!given || given->empty()) {
    if (noop) {
      // Each element by itself is still taken the absolute value of, squared, and so on.
      Shape column = shape;
      if (shape.rank() == kMaxRank) call.fail("a tensor of that many axes");
      column.push_back(1);
      return call.set(reshape(reduce_last(call, reshape(call.tensor(0), column), kind), shape));
    }
    gone.assign(gone.size(), true);
  }
  std::vector<int> order;
  Shape result;
  int64_t kept_elements = 1;
  for (const bool last : {false, true})
    for (int axis = 0; axis < shape.rank(); ++axis)
      if (gone[static_cast<size_t>(axis)] == last) order.push_back(axis);
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (!gone[static_cast<size_t>(axis)])
      kept_elements *= shape[axis], result.push_back(shape[axis]);
    else if (keep)
      result.push_back(1);
  }
  if (shape.elements() == 0)
    return call.set(call.uniform(of_nothing(call, kind), result, traced_dtype(call.element())));
  const Tensor rows =
      reshape(compose::move_axes(call.tensor(0), order), {kept_elements, shape.elements() / kept_elements});
  Tensor y = reshape(reduce_last(call, rows, kind), result);
  if (is_whole(call.element()))
    y = elementwise(call, {y}, [](E& e, const std::vector<Ref>& x) { return compose::truncated(e, x[0]); });
  call.set(y);
}

// Softmax and its kin work along one axis, before opset 13 along all from `axis` on.
void along_axis(OnnxCall& call, const std::function<Tensor(Tensor)>& of_last) {
  const Shape shape = call.shape();
  const bool flat = call.opset() < 13;
  const int axis = call.axis(call.integer("axis", flat ? 1 : -1), shape.rank());
  const Tensor x = call.tensor(0);
  if (flat)
    return call.set(reshape(of_last(reshape(x, {shape.elements(0, axis), shape.elements(axis, shape.rank())})), shape));
  if (axis == shape.rank() - 1) return call.set(of_last(x));
  call.set(compose::axis_from_end(of_last(compose::axis_to_end(x, axis)), axis));
}
void softmax_operator(OnnxCall& call) {
  along_axis(call, [](Tensor x) { return softmax(x); });
}
void log_softmax(OnnxCall& call) {
  along_axis(call, [](Tensor x) { return x - log_sum_exp_last(x); });
}
void hardmax(OnnxCall& call) {
  // 1 where an element is the first to reach the maximum.
  along_axis(call, [&](Tensor x) {
    const int64_t size = x.dim(-1);
    const Tensor most = compose::fold_last(x, compose::maximum);
    const DType dtype = x.type().dtype;
    std::vector<double> locations;
    for (int64_t i = 0; i < size; ++i) locations.push_back(static_cast<double>(i));
    const Tensor location = call.constant(
        known_numbers(dtype == DType::kF64 ? OnnxElement::kDouble : OnnxElement::kFloat, {size}, locations));
    const Tensor candidate = elementwise(call, {x, most, location}, [=](E& e, const std::vector<Ref>& v) {
      return e.apply(Scalar::kSelect, e.apply(Scalar::kEqual, v[0], v[1]), v[2], e.constant(static_cast<double>(size)));
    });
    const Tensor first = compose::fold_last(candidate, compose::minimum);
    return elementwise(call, {candidate, first},
                       [](E& e, const std::vector<Ref>& v) { return e.apply(Scalar::kEqual, v[0], v[1]); });
  });
}

// A product with a triangle of ones.
void cumulative_sum(OnnxCall& call) {
  const Shape shape = call.shape();
  const int axis = call.axis(static_cast<int64_t>(call.number(1, 0)), shape.rank());
  const bool exclusive = call.integer("exclusive", 0) != 0, reverse = call.integer("reverse", 0) != 0;
  const int64_t size = shape[axis];
  if (size > 8192) call.fail("of more than 8192 elements");
  if (shape.elements() == 0) return call.set(call.tensor(0));
  std::vector<double> ones;
  for (int64_t from = 0; from < size; ++from)
    for (int64_t to = 0; to < size; ++to) {
      const int64_t distance = reverse ? from - to : to - from;
      ones.push_back(distance > 0 || (distance == 0 && !exclusive) ? 1 : 0);
    }
  const DType dtype = traced_dtype(call.element());
  const Tensor triangle = call.constant(
      known_numbers(dtype == DType::kF64 ? OnnxElement::kDouble : OnnxElement::kFloat, {size, size}, ones));
  const Tensor rows = compose::axis_to_end(call.tensor(0), axis);
  const Shape moved = rows.shape();
  const Tensor sums = matmul(reshape(rows, {moved.elements() / size, size}), triangle);
  call.set(compose::axis_from_end(reshape(sums, moved), axis));
}

}  // namespace

void add_reduce_operators(std::vector<OnnxOperatorRow>& rows) {
  const OnnxOperatorRow list[] = {
      {"CumSum", cumulative_sum, "of at most 8192 elements; the axis must be known"},
      {"Hardmax", hardmax},
      {"LogSoftmax", log_softmax},
      {"ReduceL1", reduce<Kind::kL1>},
      {"ReduceL2", reduce<Kind::kL2>},
      {"ReduceLogSum", reduce<Kind::kLogSum>},
      {"ReduceLogSumExp", reduce<Kind::kLogSumExp>},
      {"ReduceMax", reduce<Kind::kMax>},
      {"ReduceMean", reduce<Kind::kMean>},
      {"ReduceMin", reduce<Kind::kMin>},
      {"ReduceProd", reduce<Kind::kProduct>},
      {"ReduceSum", reduce<Kind::kSum>},
      {"ReduceSumSquare", reduce<Kind::kSumOfSquares>},
      {"Softmax", softmax_operator},
  };
  rows.insert(rows.end(), std::begin(list), std::end(list));
}

}  // namespace linnet
