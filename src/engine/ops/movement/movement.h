// Ops that only move, rename or round elements. Results may be views of operands; then the kernel does nothing.
#pragma once
#include <vector>
#include "engine/ops/kernel.h"

namespace linnet {
struct ReshapeAttrs {
  Shape shape;
  void fields(FieldVisitor& visit) { visit("shape", shape); }
};
struct SplitAttrs {
  int axis = 0;
  std::vector<int64_t> sizes = {};  // along axis; they add up to its size
  void fields(FieldVisitor& visit) { visit("axis", axis), visit("sizes", sizes); }
};
struct ConcatAttrs {
  int axis = 0;
  void fields(FieldVisitor& visit) { visit("axis", axis); }
};
struct PermuteAttrs {
  std::vector<int> order = {};  // output axis i is input axis order[i]
  void fields(FieldVisitor& visit) { visit("order", order); }
};
struct BroadcastAttrs {
  Shape shape;
  void fields(FieldVisitor& visit) { visit("shape", shape); }
};
struct FillAttrs {
  TensorType type = {};
  double value = 0;
  void fields(FieldVisitor& visit) { visit("type", type), visit("value", value); }
};
struct LiteralAttrs {
  TensorType type = {};
  std::vector<int64_t> words = {};  // the elements' bytes, padded with zeros to whole words
  void fields(FieldVisitor& visit) { visit("type", type), visit("words", words); }
  std::string text() const { return "type=" + type.text(); }
};

struct CastAttrs {
  DType dtype = DType::kF32;
  void fields(FieldVisitor& visit) { visit("dtype", dtype); }
};

// visit(part, elements of `whole` before it) for the results of a split or the operands of a concat.
template <class Visit>
void for_slices(const TensorView& whole, std::span<const TensorView> parts, int axis, const Visit& visit) {
  int64_t start = 0;
  for (const TensorView& part : parts) {
    visit(part, start * whole.strides[axis]);
    start += part.shape()[axis];
  }
}

extern const OpDef kReshape, kStopGradient, kSplit, kConcat, kPermute, kBroadcast, kFill, kLiteral, kCast, kRoundHalf;

// Axes may be negative, counted from the end.
Tensor reshape(At x, Shape shape);  // as many elements as x
Tensor stop_gradient(At x);         // x; nothing flows back through it
std::vector<Tensor> split(At x, int axis, std::vector<int64_t> sizes);
std::vector<Tensor> split_evenly(At x, int axis, int parts);
Tensor slice(At x, int axis, int64_t start, int64_t size);
Tensor concat(At first, std::span<const Tensor> rest, int axis);
Tensor concat(std::span<const Tensor> parts, int axis, SourceLine where = SourceLine::current());  // at least one
// concat(), or the only part.
Tensor joined(std::span<const Tensor> parts, int axis, SourceLine where = SourceLine::current());
// x between `before` and `after` elements of `value` along an axis; a negative count adds none.
Tensor padded(At x, int axis, int64_t before, int64_t after, double value = 0);
Tensor permute(At x, std::vector<int> order);
std::vector<int> inverse_order(const std::vector<int>& order);  // permutes back
// All axes, with the named ones last.
std::vector<int> named_axes_last(const std::vector<bool>& named);
// As in NumPy: axes are matched from the last one on, those of size 1 repeated.
Tensor broadcast_to(At x, Shape shape);
Tensor fill(Graph& graph, TensorType type, double value, SourceLine where = SourceLine::current());
// Elements written in the graph: tables and masks known when a model is traced. `elements`: type.bytes() bytes.
Tensor literal(Graph& graph, TensorType type, const void* elements, SourceLine where = SourceLine::current());
Tensor literal(Graph& graph, TensorType type, const std::vector<double>& values);  // f32 or f64, rounded from `values`
// 0, 1, ... along the last axis: i32 of the shape of `tokens`.
Tensor counted_positions(Tensor tokens);
// f32 to bf16 rounds to nearest, ties to even; floats become whole numbers towards zero, clamped to the type. The
// gradient is cast back.
Tensor cast(At x, DType dtype);
// Rounds each element to fp16, beyond 65504 to infinity; y has x's type. The pass lower_precision puts it before the
// operands of products.
Tensor round_half(At x);
}  // namespace linnet
