// Operators that move, repeat or reshape elements or make shapes.
#include <algorithm>
#include "base/numbers.h"
#include "onnx/compose.h"

namespace linnet {
namespace {
Shape to_shape(const OnnxCall& call, const std::vector<int64_t>& sizes) {
  if (sizes.size() > kMaxRank) call.fail("a tensor of ", sizes.size(), " axes; ", kMaxRank, " are possible");
  for (const int64_t size : sizes)
    if (size < 0) call.fail("a negative size");
  return Shape(std::span<const int64_t>(sizes));
}

// Known values stay known.
void set_reshaped(OnnxCall& call, const Shape& shape) {
  if (call.shape().elements() != shape.elements())
    call.fail("a tensor of shape ", call.shape().text(), " cannot become ", shape.text());
  call.set(compose::reshaped(call.tensor(0), shape));
}

void reshape_operator(OnnxCall& call) {
  const std::vector<int64_t> wanted = call.ints_or_list(1, "shape");
  const Shape from = call.shape();
  const bool zero_is_zero = call.flag("allowzero");
  std::vector<int64_t> sizes;
  int64_t known = 1, rest = -1;
  for (size_t i = 0; i < wanted.size(); ++i) {
    int64_t size = wanted[i];
    if (size == 0 && !zero_is_zero) {
      if (static_cast<int>(i) >= from.rank()) call.fail("the shape copies a size that is not there");
      size = from[i];
    }
    if (size == -1) {
      if (rest >= 0) call.fail("two sizes are open");
      rest = static_cast<int64_t>(i);
    } else if (__builtin_mul_overflow(known, size, &known)) {
      call.fail("a shape of more elements than a program can count");
    }
    sizes.push_back(size);
  }
  if (rest >= 0) {
    if (known == 0 || from.elements() % known != 0)
      call.fail("a tensor of shape ", from.text(), " does not divide into the shape");
    sizes[rest] = from.elements() / known;
  }
  set_reshaped(call, to_shape(call, sizes));
}

void flatten(OnnxCall& call) {
  const Shape shape = call.shape();
  const int64_t given = call.integer("axis", 1);
  if (given < -shape.rank() || given > shape.rank()) call.fail("axis ", given, " of ", shape.text());
  const int axis = static_cast<int>(given < 0 ? given + shape.rank() : given);
  set_reshaped(call, {shape.elements(0, axis), shape.elements(axis, shape.rank())});
}

void squeeze(OnnxCall& call) {
  const Shape shape = call.shape();
  const bool is_given = call.has(1) || call.has_attribute("axes");
  std::vector<bool> gone = compose::named_axes(call, call.ints_or_list(1, "axes"), shape.rank());
  for (int axis = 0; !is_given && axis < shape.rank(); ++axis) gone[axis] = shape[axis] == 1;
  Shape result;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (!gone[axis]) result.push_back(shape[axis]);
    else if (shape[axis] != 1) call.fail("axis ", axis, " of ", shape.text(), " is not of size 1");
  }
  set_reshaped(call, result);
}

void unsqueeze(OnnxCall& call) {
  const std::vector<int64_t> axes = call.ints_or_list(1, "axes");
  const Shape shape = call.shape();
  const int rank = shape.rank() + static_cast<int>(axes.size());
  std::vector<int64_t> sizes(rank, -1);
  for (const int64_t axis : axes) {
    int64_t& size = sizes[call.axis(axis, rank)];
    if (size == 1) call.fail("an axis is put in twice");
    size = 1;
  }
  int from = 0;
  for (int64_t& size : sizes)
    if (size < 0) size = shape[from++];
  set_reshaped(call, to_shape(call, sizes));
}

void transpose(OnnxCall& call) {
  const int rank = call.shape().rank();
  const std::vector<int64_t> given = call.list("perm", mapped<int64_t>(rank, [&](int i) { return rank - 1 - i; }));
  std::vector<int> order;
  std::vector<bool> seen(rank);
  for (const int64_t axis : given) {
    order.push_back(call.axis(axis, rank));
    if (seen[order.back()]) call.fail("perm names an axis twice");
    seen[order.back()] = true;
  }
  if (static_cast<int>(order.size()) != rank) call.fail("perm has another number of axes than its operand");
  call.set(compose::move_axes(call.tensor(0), order));
}

void concat_operator(OnnxCall& call) {
  std::vector<Tensor> parts;
  const int axis = call.axis_of(1);
  for (size_t i = 0; i < call.operands(); ++i)
    if (call.shape(i) != Shape{0} || call.operands() == 1) parts.push_back(call.tensor(i));  // empty of any rank
  if (parts.empty()) parts.push_back(call.tensor(0));
  call.set(compose::join(parts, axis));
}

void split_operator(OnnxCall& call) {
  const int axis = call.axis_of(0);
  const int64_t size = call.shape()[axis];
  std::vector<int64_t> sizes = call.ints_or_list(1, "split");
  const int64_t count = call.integer("num_outputs", static_cast<int64_t>(call.results()));
  if (sizes.empty()) {
    if (count < 1) call.fail("no parts");
    const int64_t each = ceil_div(size, count);
    for (int64_t i = 0, left = size; i < count; ++i, left -= each) sizes.push_back(std::clamp<int64_t>(left, 0, each));
  }
  if (sum_of<int64_t>(sizes) != size || sizes.size() != call.results() ||
      std::ranges::any_of(sizes, [](int64_t part) { return part < 0; }))
    call.fail("the parts do not add up to axis ", axis, " of ", call.shape().text());
  const Tensor x = call.tensor(0);
  const auto from = compose::moved(x);
  const std::vector<Tensor> parts = from ? split(from->before, from->order[axis], sizes) : split(x, axis, sizes);
  for (size_t i = 0; i < parts.size(); ++i)
    call.set(i, from ? compose::move_axes(parts[i], from->order) : parts[i], call.element());
}

// One axis of a slice, by numpy's rules.
std::vector<int64_t> slice_indices(const OnnxCall& call, int64_t size, int64_t start, int64_t end, int64_t step) {
  if (step == 0) call.fail("a step of 0");
  const auto limited = [&](int64_t at) {
    if (at < 0) at = at < -size ? -1 : at + size;
    return step > 0 ? std::clamp<int64_t>(at, 0, size) : std::clamp<int64_t>(at, -1, size - 1);
  };
  // The lowest number means "before the first" when it counts backward.
  start = limited(start);
  end = end < -size ? (step > 0 ? 0 : -1) : limited(end);
  std::vector<int64_t> indices;
  step = std::clamp<int64_t>(step, -size - 1, size + 1);
  for (int64_t i = start; step > 0 ? i < end : i > end; i += step) indices.push_back(i);
  return indices;
}

void slice_operator(OnnxCall& call) {
  Tensor x = call.tensor(0);
  const std::vector<int64_t> starts = call.ints_or_list(1, "starts");
  const std::vector<int64_t> ends = call.ints_or_list(2, "ends");
  const std::vector<int64_t> axes = call.ints_or_list(3, "axes", numbers_below<int64_t>(starts.size()));
  const std::vector<int64_t> steps = call.has(4) ? call.ints(4) : std::vector<int64_t>(starts.size(), 1);
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    call.fail("starts, ends, axes and steps differ in number");
  for (size_t i = 0; i < starts.size(); ++i) {
    const int axis = call.axis(axes[i], x.shape().rank());
    const std::vector<int64_t> indices = slice_indices(call, x.dim(axis), starts[i], ends[i], steps[i]);
    const bool regular = steps[i] > 0 && !indices.empty();
    x = regular ? compose::every(x, axis, indices[0], steps[i], static_cast<int64_t>(indices.size()))
                : compose::take(x, axis, indices);
  }
  call.set(x);
}

void expand_operator(OnnxCall& call) {
  const Shape shape = compose::broadcast_shape(call, {call.shape(), to_shape(call, call.ints(1))});
  call.set(broadcast_to(call.tensor(0), shape));
}

void tile(OnnxCall& call) {
  Tensor x = call.tensor(0);
  const std::vector<int64_t> repeats = call.ints(1);
  if (static_cast<int>(repeats.size()) != x.shape().rank()) call.fail("repeats for another number of axes");
  for (int axis = 0; axis < x.shape().rank(); ++axis) {
    const int64_t count = repeats[axis];
    if (count < 0) call.fail("a negative number of copies");
    if (count == 0) x = slice(x, axis, 0, 0);
    if (count <= 1) continue;
    Shape wide;
    for (int i = 0; i < x.shape().rank(); ++i) {
      if (i == axis) wide.push_back(count);
      wide.push_back(x.dim(i));
    }
    if (wide.rank() > kMaxRank) call.fail("copies of a tensor of that many axes");
    const Shape joined = with_size(x.shape(), axis, x.dim(axis) * count);
    x = reshape(broadcast_to(reshape(x, with_size(wide, axis, 1)), wide), joined);
  }
  call.set(x);
}

// Indices of a padded axis; not for constant padding.
std::vector<int64_t> padded_indices(
    const OnnxCall& call, const std::string& mode, int64_t size, int64_t before, int64_t after) {
  if (size < 1) call.fail("nothing to pad with");
  std::vector<int64_t> indices;
  for (int64_t i = -before; i < size + after; ++i) {
    if (mode == "edge") indices.push_back(std::clamp<int64_t>(i, 0, size - 1));
    else if (mode == "wrap") indices.push_back(((i % size) + size) % size);
    else if (mode == "reflect") {
      const int64_t period = std::max<int64_t>(2 * (size - 1), 1);
      const int64_t at = ((i % period) + period) % period;
      indices.push_back(size == 1 ? 0 : std::min(at, period - at));
    } else {
      call.fail("mode \"", mode, "\"");
    }
  }
  return indices;
}

void pad_operator(OnnxCall& call) {
  Tensor x = call.tensor(0);
  const int rank = x.shape().rank();
  const std::string mode = call.text("mode", "constant");
  const std::vector<int64_t> pads = call.opset() < 11 ? call.list("pads") : call.ints(1);
  const double value = call.opset() < 11 ? call.real("value", 0) : call.number(2, 0);
  const std::vector<int64_t> axes = call.has(3) ? call.ints(3) : numbers_below<int64_t>(rank);
  if (pads.size() != 2 * axes.size()) call.fail("pads for another number of axes");
  for (size_t i = 0; i < axes.size(); ++i) {
    const int axis = call.axis(axes[i], rank);
    const int64_t before = pads[i], after = pads[i + axes.size()];
    if (before == 0 && after == 0) continue;
    x = mode == "constant" ? compose::pad(x, axis, before, after, value)
                           : compose::take(x, axis, padded_indices(call, mode, x.dim(axis), before, after));
  }
  call.set(x);
}

void shape_operator(OnnxCall& call) {
  const Shape shape = call.shape();
  const int64_t rank = shape.rank();
  const auto limited = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
  const int64_t start = limited(call.integer("start", 0)), end = limited(call.integer("end", rank));
  call.set(0, known_vector(mapped(std::max<int64_t>(end - start, 0), [&](int64_t i) { return shape[start + i]; })));
}

void constant_operator(OnnxCall& call) {
  if (const OnnxTensor* tensor = call.tensor_attribute("value"))
    return call.set(0, {.element = tensor->element, .known = std::make_shared<HostTensor>(read_host_tensor(*tensor))});
  if (call.has_attribute("value_int")) return call.set(0, known_whole(call.integer("value_int", 0)));
  if (call.has_attribute("value_float"))
    return call.set(0, known_numbers(OnnxElement::kFloat, {}, {call.real("value_float", 0)}));
  if (call.has_attribute("value_ints")) return call.set(0, known_vector(call.list("value_ints")));
  if (call.has_attribute("value_floats")) {
    const std::vector<float> values = call.reals("value_floats");
    return call.set(
        0, known_numbers(OnnxElement::kFloat, {static_cast<int64_t>(values.size())}, {values.begin(), values.end()}));
  }
  call.fail("a value that is no dense tensor of numbers");
}

void constant_of_shape(OnnxCall& call) {
  const Shape shape = to_shape(call, call.ints(0));
  OnnxElement element = OnnxElement::kFloat;
  double value = 0;
  if (const OnnxTensor* tensor = call.tensor_attribute("value")) {
    element = tensor->element;
    const HostTensor host = read_host_tensor(*tensor);
    if (host.type().shape.elements() != 1) call.fail("the value is not one number");
    value = host[0];
  }
  call.set(0, call.uniform(value, shape, traced_dtype(element)), element);
}

void range(OnnxCall& call) {
  const double start = call.number(0, 0), limit = call.number(1, 0), step = call.number(2, 1);
  if (step == 0) call.fail("a step of 0");
  const double count = std::max(0.0, std::ceil((limit - start) / step));
  if (!(count < 1e9)) call.fail("a range of too many numbers");
  std::vector<double> values;
  for (double i = 0; i < count; ++i) values.push_back(start + i * step);
  call.set(0, known_numbers(call.element(), {static_cast<int64_t>(values.size())}, values));
}

void eye_like(OnnxCall& call) {
  const Shape shape = call.shape();
  if (shape.rank() != 2) call.fail("of a tensor that is no matrix");
  const int64_t diagonal = call.integer("k", 0);
  const auto element =
      static_cast<OnnxElement>(static_cast<int32_t>(call.integer("dtype", static_cast<int64_t>(call.element()))));
  std::vector<double> values;
  for (int64_t i = 0; i < shape[0]; ++i)
    for (int64_t j = 0; j < shape[1]; ++j) values.push_back(j - i == diagonal ? 1 : 0);
  call.set(0, known_numbers(element, shape, values));
}

void trilu(OnnxCall& call) {
  const Shape shape = call.shape();
  if (shape.rank() < 2) call.fail("of a tensor that holds no matrices");
  const bool upper = call.flag("upper", true);
  const auto k = static_cast<int64_t>(call.number(1, 0));
  std::vector<double> kept;
  for (int64_t i = 0; i < shape[-2]; ++i)
    for (int64_t j = 0; j < shape[-1]; ++j) kept.push_back((upper ? j - i >= k : j - i <= k) ? 1 : 0);
  const Tensor mask = call.values({shape[-2], shape[-1]}, kept, traced_dtype(call.element()));
  call.set(elementwise(call, {call.tensor(0), mask}, [](Number x, Number kept) { return select(kept, x, 0); }));
}

int64_t block_size(const OnnxCall& call) {
  const int64_t size = call.integer("blocksize", 1);
  if (size < 1 || size > 1024) call.fail("a blocksize of ", size);
  return size;
}

void depth_to_space(OnnxCall& call) {
  const Shape s = call.shape();
  const int64_t b = block_size(call);
  if (s.rank() != 4 || s[1] % (b * b) != 0) call.fail("a tensor of shape ", s.text());
  const int64_t depth = s[1] / (b * b);
  const bool crd = call.text("mode", "DCR") == "CRD";
  Tensor x = crd ? reshape(call.tensor(0), {s[0], depth, b, b, s[2], s[3]})
                 : reshape(call.tensor(0), {s[0], b, b, depth, s[2], s[3]});
  x = permute(x, crd ? std::vector<int>{0, 1, 4, 2, 5, 3} : std::vector<int>{0, 3, 4, 1, 5, 2});
  call.set(reshape(x, {s[0], depth, s[2] * b, s[3] * b}));
}
void space_to_depth(OnnxCall& call) {
  const Shape s = call.shape();
  const int64_t b = block_size(call);
  if (s.rank() != 4 || s[2] % b != 0 || s[3] % b != 0) call.fail("a tensor of shape ", s.text());
  const bool crd = call.text("mode", "DCR") == "CRD";
  const Tensor x = permute(reshape(call.tensor(0), {s[0], s[1], s[2] / b, b, s[3] / b, b}),
      crd ? std::vector<int>{0, 1, 3, 5, 2, 4} : std::vector<int>{0, 3, 5, 1, 2, 4});
  call.set(reshape(x, {s[0], s[1] * b * b, s[2] / b, s[3] / b}));
}
}  // namespace

OnnxOperatorRows shape_operators() {
  return {
      {"Concat", concat_operator},
      {"Constant", constant_operator, "sparse values and strings are not there"},
      {"ConstantOfShape", constant_of_shape},
      {"DepthToSpace", depth_to_space},
      {"Expand", expand_operator, "the shape must be known"},
      {"EyeLike", eye_like},
      {"Flatten", flatten},
      {"Pad", pad_operator, "pads must be known", {1, 2, 3}},
      {"Range", range, "its bounds must be known", {0, 1, 2}},
      {"Reshape", reshape_operator, "the shape must be known"},
      {"Shape", shape_operator},
      {"Size", [](OnnxCall& call) { call.set(0, known_whole(call.shape().elements())); }},
      {"Slice", slice_operator, "starts, ends, axes and steps must be known"},
      {"SpaceToDepth", space_to_depth},
      {"Split", split_operator},
      {"Squeeze", squeeze},
      {"Tile", tile, "repeats must be known"},
      {"Transpose", transpose},
      {"Trilu", trilu},
      {"Unsqueeze", unsqueeze},
  };
}
}  // namespace linnet
