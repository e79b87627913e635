#include "engine/ops/movement/movement.h"
#include <algorithm>
#include "base/numbers.h"
#include "engine/kernels/parallel.h"
#include "engine/ops/broadcast.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
namespace {
std::vector<TensorType> infer_reshape(const InferArgs& args) {
  const Shape& shape = args.attrs.as<ReshapeAttrs>().shape;
  expect(shape.elements() == args.in[0].shape.elements(), "got ", args.in[0].shape, ", cannot become ", shape);
  return {{args.in[0].dtype, shape}};
}

std::vector<TensorType> infer_split(const InferArgs& args) {
  const auto& attrs = args.attrs.as<SplitAttrs>();
  const Shape& shape = args.in[0].shape;
  expect(attrs.axis >= 0 && attrs.axis < shape.rank(), "got ", shape, ", no axis ", attrs.axis);
  std::vector<TensorType> out;
  int64_t total = 0;
  for (int64_t size : attrs.sizes) {
    out.push_back({args.in[0].dtype, with_size(shape, attrs.axis, size)});
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
  const TensorType& out = args.in[0];
  expect(axis >= 0 && axis < out.shape.rank(), "got ", out.shape, ", no axis ", axis);
  int64_t total = 0;
  for (const TensorType& in : args.in) {
    expect(in.shape.rank() == out.shape.rank() && in.dtype == out.dtype, "got ", in, " beside ", out);
    total += in.shape[axis];
    const bool fits = with_size(in.shape, axis, out.shape[axis]) == out.shape;
    expect(fits, "got ", in, " beside ", out, " along axis ", axis);
  }
  return {{out.dtype, with_size(out.shape, axis, total)}};
}

std::vector<TensorType> infer_permute(const InferArgs& args) {
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
  const Shape& shape = args.attrs.as<BroadcastAttrs>().shape;
  expect(find_broadcast(args.in[0].shape, shape).has_value(), "cannot broadcast ", args.in[0].shape, " to ", shape);
  return {{args.in[0].dtype, shape}};
}

std::vector<Tensor> gradient_split(const GradientArgs& args) {
  std::vector<Tensor> parts;
  for (size_t i = 0; i < args.out.size(); ++i)
    parts.push_back(args.out_grad[i].defined() ? args.out_grad[i] : fill(args.graph, args.out[i].type(), 0));
  return {concat(parts, args.attrs<SplitAttrs>().axis)};
}

std::vector<Tensor> gradient_concat(const GradientArgs& args) {
  const int axis = args.attrs<ConcatAttrs>().axis;
  const std::vector<int64_t> sizes = mapped(args.in, [&](const Tensor& in) { return in.dim(axis); });
  return split(args.out_grad[0], axis, sizes);
}

StorageRule moved(const Node&) { return {.rest = Storage::kMoved}; }  // of ops that only move elements

// Copies `count` elements, of a repeated one if its stride is 0. Short runs use a loop, faster than a call of memmove.
template <class Word> void copy_run(const Word* from, int64_t from_stride, Word* to, int64_t to_stride, int64_t count) {
  if (from_stride == 0 && to_stride == 1) {
    std::fill_n(to, count, *from);
  } else if (from_stride != 1 || to_stride != 1) {
    for (int64_t i = 0; i < count; ++i) to[i * to_stride] = from[i * from_stride];
  } else if (count < 32) {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i];
  } else {
    std::copy_n(from, count, to);
  }
}

constexpr int64_t kRowsTurned = 16;
using Four [[gnu::vector_size(16)]] = uint32_t;

// to[i * to_step + j] = from[i + j * from_step] for four i and four j.
void turn_four(const uint32_t* from, int64_t from_step, uint32_t* to, int64_t to_step) {
  Four x[4];
  for (int j = 0; j < 4; ++j) std::memcpy(&x[j], from + j * from_step, sizeof x[j]);
  const Four low[] = {__builtin_shufflevector(x[0], x[1], 0, 4, 1, 5), __builtin_shufflevector(x[2], x[3], 0, 4, 1, 5)};
  const Four high[] = {
      __builtin_shufflevector(x[0], x[1], 2, 6, 3, 7), __builtin_shufflevector(x[2], x[3], 2, 6, 3, 7)};
  const Four y[] = {__builtin_shufflevector(low[0], low[1], 0, 1, 4, 5),
      __builtin_shufflevector(low[0], low[1], 2, 3, 6, 7), __builtin_shufflevector(high[0], high[1], 0, 1, 4, 5),
      __builtin_shufflevector(high[0], high[1], 2, 3, 6, 7)};
  for (int i = 0; i < 4; ++i) std::memcpy(to + i * to_step, &y[i], sizeof y[i]);
}

// Rows that are contiguous in `from` and apart in `to`, a few at a time, so that lines of `to` stay in cache.
void copy_turned(const uint32_t* from, int64_t from_step, uint32_t* to, int64_t to_step, int64_t to_stride,
    int64_t rows, int64_t size) {
  for (int64_t first = 0; first < rows; first += kRowsTurned, from += kRowsTurned, to += kRowsTurned * to_step) {
    const int64_t count = std::min(kRowsTurned, rows - first);
    int64_t j = 0;
    for (; to_stride == 1 && count == kRowsTurned && j + 4 <= size; j += 4)
      for (int64_t i = 0; i < kRowsTurned; i += 4)
        turn_four(from + i + j * from_step, from_step, to + i * to_step + j, to_step);
    for (; j < size; ++j)
      for (int64_t i = 0; i < count; ++i) to[i * to_step + j * to_stride] = from[i + j * from_step];
  }
}

struct Block {
  Shape shape, from, to;  // strides

  // Drops axes of one element, joins neighbors that are contiguous at both locations, and puts an axis that is
  // contiguous in `from` behind all but the last. There are elements.
  Block(const Shape& all, const Shape& from_strides, const Shape& to_strides) {
    for (int axis = 0; axis < all.rank(); ++axis) {
      const int64_t size = all[axis];
      const int last = shape.rank() - 1;
      if (size == 1) continue;
      if (last >= 0 && from[last] == from_strides[axis] * size && to[last] == to_strides[axis] * size) {
        shape.set(last, shape[last] * size);
        from.set(last, from_strides[axis]), to.set(last, to_strides[axis]);
      } else {
        shape.push_back(size), from.push_back(from_strides[axis]), to.push_back(to_strides[axis]);
      }
    }
    if (shape.rank() == 0) shape.push_back(1), from.push_back(1), to.push_back(1);
    const int second = shape.rank() - 2;
    for (int axis = 0; axis < second; ++axis)
      if (from[axis] == 1)
        for (Shape* sizes : {&shape, &from, &to}) {
          const int64_t size = (*sizes)[axis];
          sizes->set(axis, (*sizes)[second]), sizes->set(second, size);
        }
  }

  template <class Word> void copy(const std::byte* first, std::byte* result) const {
    const auto* source = reinterpret_cast<const Word*>(first);
    auto* target = reinterpret_cast<Word*>(result);
    const int last = shape.rank() - 1;
    if (last == 0) return copy_run(source, from[0], target, to[0], shape[0]);
    std::array<int64_t, kMaxRank> index{};
    for (;;) {
      copy_plane(source, target);
      int axis = last - 2;
      for (; axis >= 0; --axis) {
        source += from[axis], target += to[axis];
        if (++index[axis] < shape[axis]) break;
        source -= shape[axis] * from[axis], target -= shape[axis] * to[axis];
        index[axis] = 0;
      }
      if (axis < 0) return;
    }
  }

  template <class Word>  // the two last axes
  void copy_plane(const Word* source, Word* target) const {
    const int last = shape.rank() - 1;
    const int64_t count = shape[last - 1], from_step = from[last - 1], to_step = to[last - 1];
    const int64_t from_stride = from[last], to_stride = to[last], run = shape[last];
    if constexpr (std::is_same_v<Word, uint32_t>)  // of other sizes it would be code that few need
      if (from_step == 1 && from_stride != 0)
        return copy_turned(source, from_stride, target, to_step, to_stride, count, run);
    for (int64_t i = 0; i < count; ++i)
      copy_run(source + i * from_step, from_stride, target + i * to_step, to_stride, run);
  }
};

// Splits the copy along its longest axis but the last. Transposed rows are split at multiples of kRowsTurned.
void copy_view(const Shape& shape, const TensorView& from, int64_t from_offset, const Shape& from_strides,
    const TensorView& to, int64_t to_offset, const Shape& to_strides, ThreadPool& pool) {
  const auto bytes = static_cast<int64_t>(from.element_size());
  const std::byte* source = from.as<const std::byte>() + from_offset * bytes;
  std::byte* target = to.as<std::byte>() + to_offset * bytes;
  if (shape.elements() == 0 || (source == target && from_strides == to_strides))
    return;  // the views pass made them one
  const Block block(shape, from_strides, to_strides);
  int longest = 0;
  for (int axis = 1; axis + 1 < block.shape.rank(); ++axis)
    if (block.shape[axis] > block.shape[longest]) longest = axis;
  const int64_t size = block.shape[longest], rows = block.from[longest] == 1 ? kRowsTurned : 1;
  const int64_t pieces = ceil_div(size, rows);
  for_ranges(pool, pieces, shape.elements() / pieces, [&](int64_t begin, int64_t end) {
    begin *= rows, end = std::min(end * rows, size);
    Block part = block;
    part.shape.set(longest, end - begin);
    const std::byte* at = source + begin * block.from[longest] * bytes;
    std::byte* result = target + begin * block.to[longest] * bytes;
    switch (bytes) {
      case 8: return part.copy<uint64_t>(at, result);
      case 4: return part.copy<uint32_t>(at, result);
      case 2: return part.copy<uint16_t>(at, result);
      default: return part.copy<uint8_t>(at, result);
    }
  });
}

void run_split(const KernelArgs& args) {
  const TensorView& in = args.in[0];
  for_slices(in, args.out, args.attrs<SplitAttrs>().axis, [&](const TensorView& out, int64_t offset) {
    copy_view(out.shape(), in, offset, in.strides, out, 0, out.strides, args.pool);
  });
}

void run_concat(const KernelArgs& args) {
  const TensorView& out = args.out[0];
  for_slices(out, args.in, args.attrs<ConcatAttrs>().axis, [&](const TensorView& in, int64_t offset) {
    copy_view(in.shape(), in, 0, in.strides, out, offset, out.strides, args.pool);
  });
}

void run_permute(const KernelArgs& args) {
  const auto& order = args.attrs<PermuteAttrs>().order;
  Shape strides;
  for (int axis : order) strides.push_back(args.in[0].strides[axis]);
  copy_view(args.out[0].shape(), args.in[0], 0, strides, args.out[0], 0, args.out[0].strides, args.pool);
}

void run_broadcast(const KernelArgs& args) {
  const TensorView &in = args.in[0], &out = args.out[0];
  const Shape strides = repeated_strides(in.shape(), in.strides, out.shape());
  copy_view(out.shape(), in, 0, strides, out, 0, out.strides, args.pool);
}
}  // namespace

const OpDef kReshape{.name = "reshape",
    .infer = takes<1, infer_reshape>,
    .gradient = [](const GradientArgs& args) -> std::vector<Tensor> {
      return {reshape(args.out_grad[0], args.in[0].shape())};
    },
    .algebra = always<Algebra::kReshape>,
    .storage = moved};
// Without a gradient for its operand, the backward pass ends here.
const OpDef kStopGradient{.name = "stop_gradient",
    .infer = takes<1, infer_first>,
    .gradient = no_gradient,
    .algebra = always<Algebra::kReshape>,
    .storage = moved};
// split and concat read and write any strides: they are what the views pass could not remove.
const OpDef kSplit{.name = "split",
    .infer = takes<1, infer_split>,
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
    .infer = takes<1, infer_permute>,
    .gradient = [](const GradientArgs& args) -> std::vector<Tensor> {
      return {permute(args.out_grad[0], inverse_order(args.attrs<PermuteAttrs>().order))};
    },
    .strided_inputs = 1,
    .algebra = always<Algebra::kMove>,
    .storage = moved};
const OpDef kBroadcast{.name = "broadcast",
    .infer = takes<1, infer_broadcast>,
    .gradient = [](const GradientArgs& args) -> std::vector<Tensor> {
      return {sum_to(args.out_grad[0], args.in[0].shape())};
    },
    .algebra = always<Algebra::kMove>,
    .storage = moved};

Tensor reshape(At x, Shape shape) {
  for (const int64_t size : shape.sizes())
    if (size < 0) fail_shape(x, "reshape: the size of an axis is negative in ", shape);
  if (x.value.shape() == shape) return x.value;
  return op_result(kReshape, x, {}, ReshapeAttrs{shape});
}

Tensor stop_gradient(At x) { return op_result(kStopGradient, x); }

std::vector<Tensor> split(At x, int axis, std::vector<int64_t> sizes) {
  return op_results(kSplit, x, {}, SplitAttrs{from_start(x, axis), std::move(sizes)});
}

std::vector<Tensor> split_evenly(At x, int axis, int parts) {
  if (parts < 1 || x.value.dim(axis) % parts != 0)
    fail_shape(
        x, "split_evenly: axis ", axis, " of ", x.value.shape(), " cannot be split into ", parts, " equal parts");
  return split(x, axis, std::vector<int64_t>(static_cast<size_t>(parts), x.value.dim(axis) / parts));
}

Tensor slice(At x, int axis, int64_t start, int64_t size) {
  const int64_t whole = x.value.dim(axis);
  if (start < 0 || size < 0 || start > whole - size)
    fail_shape(x, "slice: elements ", start, " to ", start + size, " of axis ", axis, " of ", x.value.shape(),
        ", which has ", whole);
  if (start == 0 && size == whole) return x.value;
  return split(x, axis, {start, size, whole - start - size})[1];
}

Tensor concat(At first, std::span<const Tensor> rest, int axis) {
  return op_result(kConcat, first, {rest.begin(), rest.end()}, ConcatAttrs{from_start(first, axis)});
}

Tensor concat(std::span<const Tensor> parts, int axis, SourceLine where) {
  return concat(At(parts[0], where), parts.subspan(1), axis);
}

Tensor joined(std::span<const Tensor> parts, int axis, SourceLine where) {
  return parts.size() == 1 ? parts[0] : concat(parts, axis, where);
}

Tensor padded(At x, int axis, int64_t before, int64_t after, double value) {
  std::vector<Tensor> parts;
  const auto add_filled = [&](int64_t size) {
    if (size <= 0) return;
    const TensorType type{x.value.type().dtype, with_size(x.value.shape(), axis, size)};
    parts.push_back(fill(*graph_of(x), type, value, x.where));
  };
  add_filled(before);
  parts.push_back(x.value);
  add_filled(after);
  return joined(parts, axis, x.where);
}

Tensor permute(At x, std::vector<int> order) { return op_result(kPermute, x, {}, PermuteAttrs{std::move(order)}); }

std::vector<int> inverse_order(const std::vector<int>& order) {
  std::vector<int> inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) inverse[order[i]] = static_cast<int>(i);
  return inverse;
}

std::vector<int> named_axes_last(const std::vector<bool>& named) {
  std::vector<int> order;
  for (const bool last : {false, true})
    for (size_t axis = 0; axis < named.size(); ++axis)
      if (named[axis] == last) order.push_back(static_cast<int>(axis));
  return order;
}

LINNET_KERNELS(stop_gradient, {"reference", copy_first})
LINNET_KERNELS(reshape, {"reference", copy_first})
LINNET_KERNELS(split, {"reference", run_split})
LINNET_KERNELS(concat, {"reference", run_concat})
LINNET_KERNELS(permute, {"reference", run_permute})
LINNET_KERNELS(broadcast, {"reference", run_broadcast})
}  // namespace linnet
