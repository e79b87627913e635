#include "onnx/compose.h"
#include <algorithm>
#include "base/text.h"
#include "engine/ops/broadcast.h"
#include "engine/ops/embedding/embedding.h"

namespace linnet::compose {
namespace {
// An operand beside moved tensors, before the move: a number, one per channel (last axis before the move), or a tensor
// small enough to move. Undefined: not possible.
Tensor beside_moved(Tensor x, const Shape& full, const std::vector<int>& order) {
  const Shape shape = with_rank(x.shape(), full.rank());
  if (x.shape().elements() == 1) return reshape(x, {});
  const int last = full.rank() - 1;
  const auto channels = static_cast<int>(std::ranges::find(order, last) - order.begin());
  if (shape.elements() == full[channels] && shape[channels] == full[channels]) return reshape(x, {full[channels]});
  if (2 * shape.elements() > full.elements()) return {};
  return move_axes(reshape(x, shape), inverse_order(order));
}

// Computes between two convolutions with channels last too, without moving data.
bool undo_moves(std::vector<Tensor>& x, Shape& full, std::vector<int>& order) {
  const auto found = std::ranges::find_if(x, [&](Tensor t) { return t.shape() == full && moved(t); });
  if (found == x.end()) return false;
  const Moved first = *moved(*found);
  order = first.order;
  std::vector<Tensor> before;
  for (const Tensor& tensor : x) {
    const std::optional<Moved> same = tensor.shape() == full ? moved(tensor) : std::nullopt;
    before.push_back(same && same->order == order ? same->before : beside_moved(tensor, full, order));
    if (!before.back().defined()) return false;
  }
  x = before, full = first.before.shape();
  return true;
}

// f(x, axis) before the move of a moved tensor.
template <class F> Tensor along(Tensor x, int axis, const F& f) {
  const Moved from = *moved(x);
  return move_axes(f(from.before, from.order[axis]), from.order);
}

// All axes, with one of them first or last.
std::vector<int> axis_order(int rank, int axis, bool last) {
  std::vector<bool> named(rank, !last);
  named[axis] = last;
  return named_axes_last(named);
}

// The reshape of a moved tensor as a move of a reshaped one.
std::optional<Moved> reshape_before(const Moved& from, const Shape& now, const Shape& shape) {
  struct Group {
    int first, last;  // axes of `shape`
  };
  std::vector<Group> groups(now.rank(), {0, 0});  // by the first axis before the move
  int axis = 0, next = 0;
  while (axis < now.rank() && next < shape.rank()) {
    const int before = from.order[axis], first = next;
    int joined = 1;
    int64_t size = now[axis], wanted = shape[next++];
    while (size != wanted) {
      if (size < wanted) {
        if (axis + joined == now.rank()) return std::nullopt;
        if (from.order[axis + joined] != before + joined) return std::nullopt;
        size *= now[axis + joined++];
      } else {
        if (next == shape.rank()) return std::nullopt;
        wanted *= shape[next++];
      }
    }
    axis += joined;
    if (axis == now.rank()) next = shape.rank();  // axes of one element behind the last
    groups[before] = {first, next};
  }
  if (axis < now.rank()) return std::nullopt;
  Shape apart;
  std::vector<int> order(shape.rank());
  for (const Group& group : groups)
    for (int i = group.first; i < group.last; ++i) {
      order[i] = apart.rank();
      apart.push_back(shape[i]);
    }
  return Moved{reshape(from.before, apart), order};
}
}  // namespace

std::optional<Moved> moved(Tensor x) {
  const Node* node = producer_of(x);
  if (!is(node, kPermute)) return std::nullopt;
  return Moved{{x.graph, node->in[0]}, node->attrs.as<PermuteAttrs>().order};
}

Tensor reshaped(Tensor x, const Shape& shape) {
  if (x.shape() == shape) return x;
  Tensor earlier = x;
  for (const Node* by = producer_of(x); is(by, kReshape); by = producer_of(earlier)) {
    earlier.id = by->in[0];
    if (earlier.shape() == shape) return earlier;
  }
  if (const auto from = moved(x); from && shape.elements() > 0)
    if (const auto result = reshape_before(*from, x.shape(), shape)) return move_axes(result->before, result->order);
  return reshape(x, shape);
}

Tensor reduced(Tensor x, const std::vector<bool>& axes, Tensor (*reduce)(At x, const Shape& shape)) {
  const std::optional<Moved> from = moved(x);
  Shape kept = from ? from->before.shape() : x.shape();
  for (int axis = 0; axis < kept.rank(); ++axis)
    if (axes[axis]) kept.set(from ? from->order[axis] : axis, 1);
  return from ? move_axes(reduce(from->before, kept), from->order) : reduce(x, kept);
}

Shape broadcast_shape(const OnnxCall& call, const std::vector<Shape>& shapes) {
  if (const auto full = linnet::broadcast_shape(shapes)) return *full;
  call.fail("operands of shapes ", joined(shapes, " and ", &Shape::text), " do not fit together");
}

Tensor elementwise_of(const OnnxCall& call, std::vector<Tensor> x, const Formula& formula) {
  const std::vector<Shape> shapes = mapped(x, &Tensor::shape);
  Shape full = broadcast_shape(call, shapes);
  std::vector<int> order;
  const bool is_moved = undo_moves(x, full, order);
  FormulaBuilder f;
  std::vector<Number> elements;
  std::vector<Tensor> operands;  // without repeats
  for (const Tensor& tensor : x) {
    const auto same = std::ranges::find(operands, tensor.id, &Tensor::id);
    elements.push_back(f[static_cast<int>(same - operands.begin())]);
    if (same == operands.end()) operands.push_back(tensor);
  }
  const Tensor y = f.finish(formula(elements), operands);
  return is_moved ? permute(y, order) : y;
}

Tensor add(const OnnxCall& call, Tensor a, Tensor b) {
  return elementwise(call, {a, b}, [](Number a, Number b) { return a + b; });
}

Tensor by_channel(Tensor values, int rank) {
  const int64_t channels = values.shape().elements();
  return reshape(values, Shape(mapped(rank, [&](int axis) { return axis == 1 ? channels : 1; })));
}

Tensor reversed(Tensor x, int axis) {
  return take(x, axis, mapped(x.dim(axis), [&](int64_t i) { return x.dim(axis) - 1 - i; }));
}

Tensor take(Tensor x, int axis, const std::vector<int64_t>& indices) {
  if (moved(x)) return along(x, axis, [&](Tensor x, int axis) { return take(x, axis, indices); });
  const auto count = static_cast<int64_t>(indices.size());
  bool in_a_row = true;
  for (size_t i = 1; i < indices.size(); ++i) in_a_row = in_a_row && indices[i] == indices[0] + static_cast<int64_t>(i);
  if (in_a_row && count > 0) return slice(x, axis, indices[0], count);
  const Shape shape = x.shape();
  if (count == 0) return slice(x, axis, 0, 0);
  std::vector<int32_t> ids(indices.begin(), indices.end());
  const Tensor locations = literal(*x.graph, {DType::kI32, {count}}, ids.data());
  // The axis first, all else in a row of the table.
  const std::vector<int> order = axis_order(shape.rank(), axis, false);
  const Tensor first = move_axes(x, order);
  const Tensor rows =
      embedding(reshape(first, {shape[axis], shape.elements() / std::max<int64_t>(shape[axis], 1)}), locations);
  return move_axes(reshape(rows, with_size(first.shape(), 0, count)), inverse_order(order));
}

Tensor every(Tensor x, int axis, int64_t start, int64_t step, int64_t count) {
  if (moved(x)) return along(x, axis, [&](Tensor x, int axis) { return every(x, axis, start, step, count); });
  if (step == 1 || count == 1) return slice(x, axis, start, count);
  // Groups of `step` elements, of which the first is taken; the last group may need padding.
  const int64_t end = start + step * count, size = x.dim(axis);
  Tensor part = slice(x, axis, start, std::min(end, size) - start);
  if (end > size) part = pad(part, axis, 0, end - size, 0);
  const Shape shape = part.shape();
  const int64_t outer = shape.elements(0, axis), inner = shape.elements(axis + 1, shape.rank());
  const Tensor groups = reshape(part, {outer, count, step * inner});
  return reshape(slice(groups, 2, 0, inner), with_size(shape, axis, count));
}

Tensor repeat_each(Tensor x, int axis, int64_t times) {
  if (moved(x)) return along(x, axis, [&](Tensor x, int axis) { return repeat_each(x, axis, times); });
  const Shape s = x.shape();
  const int64_t places = s.elements(0, axis + 1), inner = s.elements(axis + 1, s.rank());
  return reshape(
      broadcast_to(reshape(x, {places, 1, inner}), {places, times, inner}), with_size(s, axis, times * s[axis]));
}

Tensor pad(Tensor x, int axis, int64_t before, int64_t after, double value) {
  if (moved(x)) return along(x, axis, [&](Tensor x, int axis) { return pad(x, axis, before, after, value); });
  if (before < 0 || after < 0) {
    const int64_t start = std::max<int64_t>(-before, 0), end = std::max<int64_t>(-after, 0);
    x = slice(x, axis, start, std::max<int64_t>(x.dim(axis) - start - end, 0));
  }
  return padded(x, axis, before, after, value);
}

Tensor join(const std::vector<Tensor>& parts, int axis) {
  const std::optional<Moved> first = moved(parts[0]);
  std::vector<Tensor> before;
  for (const Tensor& part : parts)
    if (const std::optional<Moved> from = moved(part); first && from && from->order == first->order)
      before.push_back(from->before);
  if (before.size() < parts.size()) return joined(parts, axis);
  return move_axes(joined(before, first->order[axis]), first->order);
}

Tensor channels_last(Tensor x) { return axis_to_end(x, 1); }
Tensor channels_first(Tensor x) { return axis_from_end(x, 1); }

Tensor move_axes(Tensor x, const std::vector<int>& order) {
  if (std::ranges::is_sorted(order)) return x;
  if (const std::optional<Moved> earlier = moved(x)) {
    const std::vector<int> both = mapped(order, [&](int axis) { return earlier->order[axis]; });
    return move_axes(earlier->before, both);
  }
  Shape shape;
  std::vector<int> long_axes;
  for (const int axis : order) {
    shape.push_back(x.dim(axis));
    if (x.dim(axis) != 1) long_axes.push_back(axis);
  }
  if (std::ranges::is_sorted(long_axes)) return reshape(x, shape);  // nothing moves
  return permute(x, order);
}

Tensor axis_to_front(Tensor x, int axis) { return move_axes(x, axis_order(x.shape().rank(), axis, false)); }
Tensor axis_to_end(Tensor x, int axis) { return move_axes(x, axis_order(x.shape().rank(), axis, true)); }
Tensor axis_from_end(Tensor x, int axis) {
  return move_axes(x, inverse_order(axis_order(x.shape().rank(), axis, true)));
}

std::vector<bool> named_axes(const OnnxCall& call, const std::vector<int64_t>& axes, int rank) {
  std::vector<bool> named(rank);
  for (const int64_t axis : axes) named[call.axis(axis, rank)] = true;
  return named;
}

void each_index(const Shape& shape, const std::function<void(const std::vector<int64_t>& index)>& visit) {
  std::vector<int64_t> index(shape.rank());
  for (int64_t i = 0; i < shape.elements(); ++i) {
    visit(index);
    for (int axis = shape.rank(); axis-- > 0;) {
      if (++index[axis] < shape[axis]) break;
      index[axis] = 0;
    }
  }
}

Tensor maximum(Tensor a, Tensor b) { return a.id == b.id ? a : apply_scalar(Scalar::kMax, a, b); }

Tensor mean_last(Tensor x) { return sum_last(x) * (1.0 / static_cast<double>(x.dim(-1))); }
}  // namespace linnet::compose
