#include <algorithm>
#include <numeric>
#include "api/cpp/helpers.h"
#include "base/error.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/softmax/softmax.h"
#include "linnet/math.h"

namespace linnet {
int64_t checked_size(const At& x, int axis, const char* op) {
  const Shape shape = x.value.shape();
  if (axis < -shape.rank() || axis >= shape.rank()) fail_shape(x, op, ": there is no axis ", axis, " in ", shape);
  return shape[axis];
}

namespace {
Shape last_to_one(const Tensor& x) {
  Shape shape = x.shape();
  shape.set(-1, 1);
  return shape;
}

// x as [rows, n], with the n elements of the reduced axes in each row.
struct AxesLast {
  Tensor x;
  Shape without, kept;  // left out, and with the size 1
};

AxesLast axes_last(At x, const std::vector<int>& axes, const char* op) {
  const Shape shape = x.value.shape();
  std::vector<bool> reduced(shape.rank());
  AxesLast moved{x.value, {}, shape};
  int64_t count = 1;
  for (const int axis : axes) {
    count *= checked_size(x, axis, op);
    const int from_start = axis < 0 ? axis + shape.rank() : axis;
    if (reduced[from_start]) fail_shape(x, op, ": axis ", axis, " is given twice");
    reduced[from_start] = true;
    moved.kept.set(axis, 1);
  }
  std::vector<int> order;
  for (const bool last : {false, true})
    for (int axis = 0; axis < shape.rank(); ++axis)
      if (reduced[axis] == last) {
        order.push_back(axis);
        if (!last) moved.without.push_back(shape[axis]);
      }
  if (!std::ranges::is_sorted(order)) moved.x = permute(x, order);
  moved.x = reshape(At(moved.x, x.where), {moved.without.elements(), count});
  return moved;
}

Tensor sum_last(At x) { return sum_to(x, last_to_one(x.value)); }

// The product of the axes' sizes.
int64_t axes_size(const At& x, const std::vector<int>& axes, const char* op) {
  int64_t count = 1;
  for (const int axis : axes) count *= checked_size(x, axis, op);
  return count;
}

// Moves `axis` of x to the end, applies `function`, and moves it back.
template <class Function> Tensor along(At x, int axis, const char* op, const Function& function) {
  checked_size(x, axis, op);
  const int last = x.value.shape().rank() - 1;
  if (axis < 0) axis += last + 1;
  if (axis == last) return function(x);
  std::vector<int> order(static_cast<size_t>(last) + 1);
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[axis], order.back());
  return permute(At(function(At(permute(x, order), x.where)), x.where), order);
}
}  // namespace

Tensor sum(At x) { return sum_to(x, {}); }

Tensor sum(At x, int axis) { return sum(x, std::vector{axis}); }

// Leading axes need no move.
Tensor sum(At x, const std::vector<int>& axes, bool keep) {
  const AxesLast moved = axes_last(x, axes, "sum");
  const Shape shape = x.value.shape();
  const bool are_first = std::ranges::all_of(
      axes, [&](int axis) { return (axis < 0 ? axis + shape.rank() : axis) < static_cast<int>(axes.size()); });
  const Tensor sums = are_first ? sum_to(x, moved.without) : sum_last(At(moved.x, x.where));
  return reshape(At(sums, x.where), keep ? moved.kept : moved.without);
}

Tensor mean(At x) { return At(sum(x), x.where) * (1 / static_cast<double>(x.value.shape().elements())); }

Tensor mean(At x, int axis) { return mean(x, std::vector{axis}); }

Tensor mean(At x, const std::vector<int>& axes, bool keep) {
  return At(sum(x, axes, keep), x.where) * (1 / static_cast<double>(axes_size(x, axes, "mean")));
}

Tensor variance(At x, const std::vector<int>& axes, bool keep) {
  return mean(At(square(At(x - mean(x, axes, true), x.where)), x.where), axes, keep);
}

Tensor max(At x, int axis) { return max(x, std::vector{axis}); }

// max_last() is constant for gradients; the mean of the elements equal to it has the same value.
Tensor max(At x, const std::vector<int>& axes, bool keep) {
  const auto at = [&](Tensor value) { return At(value, x.where); };
  const AxesLast moved = axes_last(x, axes, "max");
  const Tensor largest = equal(at(moved.x), max_last(at(moved.x)));
  const Tensor zeros = at(largest) * 0.0;
  const Tensor chosen = where(at(largest), moved.x, zeros);
  return reshape(at(at(sum_last(at(chosen))) / sum_last(at(largest))), keep ? moved.kept : moved.without);
}

Tensor min(At x, int axis) { return min(x, std::vector{axis}); }
Tensor min(At x, const std::vector<int>& axes, bool keep) { return -At(max(At(-x, x.where), axes, keep), x.where); }

Tensor argmax(At x, int axis) {
  const AxesLast moved = axes_last(x, {axis}, "argmax");
  return reshape(At(argmax_last(At(moved.x, x.where)), x.where), moved.without);
}

Tensor log_sum_exp(At x, int axis) {
  const AxesLast moved = axes_last(x, {axis}, "log_sum_exp");
  return reshape(At(log_sum_exp_last(At(moved.x, x.where)), x.where), moved.without);
}

Tensor softmax(At x, int axis) {
  return along(x, axis, "softmax", [](At rows) { return softmax(rows); });
}

Tensor log_softmax(At x) { return log_softmax(x, -1); }

Tensor log_softmax(At x, int axis) {
  return along(x, axis, "log_softmax", [](At rows) { return rows - log_sum_exp_last(rows); });
}
}  // namespace linnet
