#include "engine/ops/movement/movement.h"
#include <array>
#include <cstring>
#include "engine/ops/broadcast.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
namespace {
template <class T> std::string list_text(const std::vector<T>& list) {
  std::string text;
  for (const T& item : list) text += (text.empty() ? "[" : ", ") + std::to_string(item);
  return text + "]";
}

std::vector<TensorType> infer_reshape(const InferArgs& args) {
  expect_inputs(args, 1);
  const Shape& shape = args.attrs.as<ReshapeAttrs>().shape;
  expect(shape.elements() == args.in[0].shape.elements(), "got ", args.in[0].shape, ", cannot become ", shape);
  return {{args.in[0].dtype, shape}};
}

std::vector<TensorType> infer_split(const InferArgs& args) {
  expect_inputs(args, 1);
  const auto& attrs = args.attrs.as<SplitAttrs>();
  const Shape& shape = args.in[0].shape;
  expect(attrs.axis >= 0 && attrs.axis < shape.rank(), "got ", shape, ", no axis ", attrs.axis);
  std::vector<TensorType> out;
  int64_t total = 0;
  for (int64_t size : attrs.sizes) {
    out.push_back(args.in[0]);
    out.back().shape.set(attrs.axis, size);
    total += size;
    expect(size >= 0, "got a negative size");
  }
  expect(total == shape[attrs.axis], "got ", shape, ", expected sizes ", list_text(attrs.sizes), " to add up to axis ",
      attrs.axis);
  return out;
}

std::vector<TensorType> infer_concat(const InferArgs& args) {
  const int axis = args.attrs.as<ConcatAttrs>().axis;
  expect(!args.in.empty(), "nothing to concatenate");
  TensorType out = args.in[0];
  expect(axis >= 0 && axis < out.shape.rank(), "got ", out.shape, ", no axis ", axis);
  int64_t total = 0;
  for (const TensorType& in : args.in) {
    Shape other = in.shape;
    expect(other.rank() == out.shape.rank() && in.dtype == out.dtype, "got ", in, " beside ", out);
    total += other[axis];
    other.set(axis, out.shape[axis]);
    expect(other == out.shape, "got ", in, " beside ", out, " along axis ", axis);
  }
  out.shape.set(axis, total);
  return {out};
}

std::vector<TensorType> infer_permute(const InferArgs& args) {
  expect_inputs(args, 1);
  const auto& order = args.attrs.as<PermuteAttrs>().order;
  const Shape& shape = args.in[0].shape;
  std::vector<bool> seen(shape.rank());
  Shape out;
  for (int axis : order) {
    expect(axis >= 0 && axis < shape.rank() && !seen[axis], "got ", shape, ", ", list_text(order),
        " is no order of its axes");
    seen[axis] = true;
    out.push_back(shape[axis]);
  }
  expect(out.rank() == shape.rank(), "got ", shape, ", ", list_text(order), " is no order of its axes");
  return {{args.in[0].dtype, out}};
}

std::vector<TensorType> infer_broadcast(const InferArgs& args) {
  expect_inputs(args, 1);
  const Shape& shape = args.attrs.as<BroadcastAttrs>().shape;
  expect(find_broadcast(args.in[0].shape, shape).has_value(), "cannot broadcast ", args.in[0].shape, " to ", shape);
  return {{args.in[0].dtype, shape}};
}

std::vector<TensorType> infer_movement_fill(const InferArgs& args) {
  expect_inputs(args, 0);
  return {args.attrs.as<FillAttrs>().type};
}

std::vector<TensorType> infer_literal(const InferArgs& args) {
  expect_inputs(args, 0);
  const auto& attrs = args.attrs.as<LiteralAttrs>();
  expect(attrs.words.size() == (attrs.type.bytes() + 7) / 8, attrs.words.size(), " words of data for ", attrs.type);
  return {attrs.type};
}

std::vector<TensorType> infer_cast(const InferArgs& args) {
  expect_inputs(args, 1);
  const DType from = args.in[0].dtype, dtype = args.attrs.as<CastAttrs>().dtype;
  const auto fits = [](DType one, DType other) { return one != DType::kBF16 || other == DType::kF32; };
  expect(from == dtype || (fits(from, dtype) && fits(dtype, from)), "got ", args.in[0], ", cannot become ",
      dtype_name(dtype));
  return {{dtype, args.in[0].shape}};
}

std::vector<Tensor> gradient_split(const GradientArgs& args) {
  std::vector<Tensor> parts;
  for (size_t i = 0; i < args.out.size(); ++i)
    parts.push_back(args.out_grad[i].defined() ? args.out_grad[i] : fill(args.graph, args.out[i].type(), 0));
  return {concat(parts[0], std::span(parts).subspan(1), args.attrs<SplitAttrs>().axis)};
}

std::vector<Tensor> gradient_concat(const GradientArgs& args) {
  const int axis = args.attrs<ConcatAttrs>().axis;
  std::vector<int64_t> sizes;
  for (const Tensor& in : args.in) sizes.push_back(in.dim(axis));
  return split(args.out_grad[0], axis, sizes);
}

std::vector<Tensor> gradient_permute(const GradientArgs& args) {
  const auto& order = args.attrs<PermuteAttrs>().order;
  std::vector<int> inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) inverse[order[i]] = static_cast<int>(i);
  return {permute(args.out_grad[0], inverse)};
}

StorageRule moved(const Node&) { return {.rest = Storage::kMoved}; }  // of ops that only move elements

// Checks the operand first, since its error names the line.
int from_start(const At& x, int axis) { return graph_of(x) && axis < 0 ? axis + x.value.shape().rank() : axis; }
}  // namespace

const OpDef kReshape{.name = "reshape",
    .infer = infer_reshape,
    .gradient = [](const GradientArgs& args) -> std::vector<Tensor> {
      return {reshape(args.out_grad[0], args.in[0].shape())};
    },
    .algebra = always<Algebra::kReshape>,
    .storage = moved};
// Without a gradient for its operand, the backward pass ends here.
const OpDef kStopGradient{.name = "stop_gradient",
    .infer = [](const InferArgs& args) -> std::vector<TensorType> {
      expect_inputs(args, 1);
      return {args.in[0]};
    },
    .gradient = no_gradient,
    .algebra = always<Algebra::kReshape>,
    .storage = moved};
// split and concat read and write any strides: they are what the views pass could not remove.
const OpDef kSplit{.name = "split",
    .infer = infer_split,
    .gradient = gradient_split,
    .strided_inputs = ~0u,
    .strided_outputs = ~0u,
    .algebra = always<Algebra::kSplit>,
    .axis = [](const Node& node) { return node.attrs.as<SplitAttrs>().axis; },
    .storage = moved};
const OpDef kConcat{.name = "concat",
    .infer = infer_concat,
    .gradient = gradient_concat,
    .strided_inputs = ~0u,
    .strided_outputs = ~0u,
    .algebra = always<Algebra::kConcat>,
    .axis = [](const Node& node) { return node.attrs.as<ConcatAttrs>().axis; },
    .storage = moved};
const OpDef kPermute{.name = "permute",
    .infer = infer_permute,
    .gradient = gradient_permute,
    .strided_inputs = 1,
    .algebra = always<Algebra::kMove>,
    .storage = moved};
const OpDef kBroadcast{.name = "broadcast",
    .infer = infer_broadcast,
    .gradient = [](const GradientArgs& args) -> std::vector<Tensor> {
      return {sum_to(args.out_grad[0], args.in[0].shape())};
    },
    .algebra = always<Algebra::kMove>,
    .storage = moved};
const OpDef kFill{.name = "fill", .infer = infer_movement_fill, .gradient = no_gradient};
const OpDef kLiteral{.name = "literal", .infer = infer_literal, .gradient = no_gradient};
const OpDef kCast{.name = "cast", .infer = infer_cast, .gradient = [](const GradientArgs& args) -> std::vector<Tensor> {
                    const DType from = args.in[0].type().dtype;
                    if (!is_float(from) || !is_float(args.out[0].type().dtype)) return {Tensor{}};
                    return {cast(args.out_grad[0], from)};
                  }};

Tensor reshape(At x, Shape shape) {
  for (const int64_t size : shape.sizes())
    if (size < 0)
      throw Error(ErrorKind::kShape, x.where.text() + ": reshape: the size of an axis is negative in " + shape.text());
  if (x.value.shape() == shape) return x.value;
  return op_result(kReshape, x, {}, ReshapeAttrs{shape});
}

Tensor stop_gradient(At x) { return op_result(kStopGradient, x); }

std::vector<Tensor> split(At x, int axis, std::vector<int64_t> sizes) {
  return op_results(kSplit, x, {}, SplitAttrs{from_start(x, axis), std::move(sizes)});
}

std::vector<Tensor> split_evenly(At x, int axis, int parts) {
  if (parts < 1 || x.value.dim(axis) % parts != 0)
    throw Error(ErrorKind::kShape, x.where.text() + ": split_evenly: axis " + std::to_string(axis) + " of " +
                                       x.value.shape().text() + " cannot be split into " + std::to_string(parts) +
                                       " equal parts");
  return split(x, axis, std::vector<int64_t>(static_cast<size_t>(parts), x.value.dim(axis) / parts));
}

Tensor slice(At x, int axis, int64_t start, int64_t size) {
  const int64_t whole = x.value.dim(axis);
  if (start < 0 || size < 0 || start > whole - size)
    throw Error(ErrorKind::kShape, x.where.text() + ": slice: elements " + std::to_string(start) + " to " +
                                       std::to_string(start + size) + " of axis " + std::to_string(axis) + " of " +
                                       x.value.shape().text() + ", which has " + std::to_string(whole));
  if (start == 0 && size == whole) return x.value;
  return split(x, axis, {start, size, whole - start - size})[1];
}

Tensor concat(At first, std::span<const Tensor> rest, int axis) {
  return op_result(kConcat, first, {rest.begin(), rest.end()}, ConcatAttrs{from_start(first, axis)});
}

Tensor permute(At x, std::vector<int> order) { return op_result(kPermute, x, {}, PermuteAttrs{std::move(order)}); }

namespace {
// Repeats axes [first, last) of one element to their sizes in `shape`.
Tensor repeat_axes(At x, int first, int last, const Shape& shape) {
  const auto at = [&](Tensor value) { return At(value, x.where); };
  Shape result = x.value.shape();
  for (int axis = first; axis < last; ++axis) result.set(axis, shape[axis]);
  const int64_t outer = result.elements(0, first), n = result.elements(first, last);
  const int64_t inner = result.elements(last, result.rank());
  if (inner == 1) return reshape(at(broadcast_to(at(reshape(x, {outer, 1})), {outer, n})), result);
  if (outer == 1) return reshape(at(broadcast_to(at(reshape(x, {inner})), {n, inner})), result);
  constexpr int64_t kFew = 8;
  if (n <= kFew) {
    const std::vector<Tensor> rows(n, reshape(x, {outer, 1, inner}));
    return reshape(at(concat(at(rows[0]), std::span(rows).subspan(1), 1)), result);
  }
  const Tensor copies = broadcast_to(at(reshape(x, {outer, inner, 1})), {outer, inner, n});
  return reshape(at(permute(at(copies), {0, 2, 1})), result);
}
}  // namespace

Tensor broadcast_to(At x, Shape shape) {
  const Shape small = x.value.shape();
  if (small == shape) return x.value;
  if (const auto full = broadcast_shape(std::array{small, shape});
      full && *full == shape && !find_broadcast(small, shape)) {
    At repeated(reshape(x, with_rank(small, shape.rank())), x.where);
    const auto differs = [&](int axis) { return axis < shape.rank() && repeated.value.dim(axis) != shape[axis]; };
    for (int axis = 0; axis < shape.rank(); ++axis) {
      int last = axis;
      while (differs(last)) ++last;
      if (last > axis) repeated.value = repeat_axes(repeated, axis, last, shape);
    }
    return repeated.value;
  }
  return op_result(kBroadcast, x, {}, BroadcastAttrs{shape});
}

Tensor fill(Graph& graph, TensorType type, double value, SourceLine where) {
  return graph.add_one(kFill, {}, FillAttrs{type, value}, where);
}

Tensor literal(Graph& graph, TensorType type, const void* elements, SourceLine where) {
  LiteralAttrs attrs{.type = type};
  attrs.words.resize((type.bytes() + 7) / 8);
  if (type.bytes() > 0) std::memcpy(attrs.words.data(), elements, type.bytes());
  return graph.add_one(kLiteral, {}, std::move(attrs), where);
}

Tensor literal(Graph& graph, TensorType type, const std::vector<double>& values) {
  if (type.dtype == DType::kF64) return literal(graph, type, values.data());
  const std::vector<float> floats(values.begin(), values.end());
  return literal(graph, type, floats.data());
}

Tensor cast(At x, DType dtype) {
  if (x.value.type().dtype == dtype) return x.value;
  return op_result(kCast, x, {}, CastAttrs{dtype});
}
}  // namespace linnet
