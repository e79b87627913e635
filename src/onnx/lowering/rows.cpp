// Ops on whole rows: norms, reductions, softmax, lookups.
#include "engine/ops/attention/attention.h"
#include "engine/ops/broadcast.h"
#include "engine/ops/layer_norm/layer_norm.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/rope/rope.h"
#include "onnx/lowering/lowering.h"

namespace linnet {
namespace {
const char* operator_of(Reduction kind) {
  return kind == Reduction::kSum ? "ReduceSum" : kind == Reduction::kMax ? "ReduceMax" : "ReduceLogSumExp";
}

std::vector<int64_t> reduced_axes(const Shape& small, const Shape& full) {
  std::vector<int64_t> axes;
  const Broadcast kind = *find_broadcast(small, full);
  int kept = 0;  // trailing axes of a suffix
  if (kind == Broadcast::kSuffix)
    for (int64_t elements = 1; elements < small.elements(); ++kept) elements *= full[-1 - kept];
  for (int axis = 0; axis < full.rank(); ++axis) {
    const bool stays = kind == Broadcast::kPrefix ? small[axis] == full[axis]
                                                  : kind == Broadcast::kSuffix && axis >= full.rank() - kept;
    if (!stays) axes.push_back(axis);
  }
  return axes;
}

// LayerNormalization from opset 17 on; before, and for root-mean-square norms, nodes that ONNX Runtime fuses.
std::string normalized(OnnxLowering& to, const LayerNormAttrs& attrs) {
  OnnxBuilder& b = to.builder;
  std::string x = to.in(0);
  if (attrs.centered) x = b.add("Sub", {x, b.reduce("ReduceMean", x, {-1})});
  const std::string variance = b.reduce("ReduceMean", b.add("Pow", {x, b.number(2)}), {-1});
  return b.add("Div", {x, b.add("Sqrt", {b.add("Add", {variance, b.number(attrs.epsilon)})})});
}

// The angles of all positions: float [B or 1, T, 1, half].
std::string angles(OnnxLowering& to, const RopeAttrs& attrs) {
  OnnxBuilder& b = to.builder;
  std::string positions;
  if (attrs.has_positions) positions = b.unsqueeze(to.in(1), {2, 3});
  else
    positions = b.unsqueeze(b.add("Range", {b.integer(0), b.size_scalar(to.in_shape(0)[1]), b.integer(1)}), {0, 2, 3});
  std::vector<float> frequencies;
  for (int64_t i = 0; i < attrs.half(); ++i)
    frequencies.push_back(static_cast<float>(rope_frequency(attrs, i) * (attrs.inverse ? -1 : 1)));
  return b.add("Mul", {b.cast(positions, OnnxElement::kFloat), b.tensor(float_tensor({attrs.half()}, frequencies))});
}
}  // namespace

void lower_reduce(OnnxLowering& to) {
  const std::vector<int64_t> axes = reduced_axes(to.out_type(0).shape, to.in_type(0).shape);
  SymbolicShape kept = to.in_shape(0);
  for (const int64_t axis : axes) kept[axis] = {1};
  const std::string y = to.builder.reduce(operator_of(to.attrs<ReduceAttrs>().kind), to.in(0), axes);
  to.set(0, to.builder.reshape(y, kept, to.out_shape(0)));
}

void lower_layer_norm(OnnxLowering& to) {
  const auto& attrs = to.attrs<LayerNormAttrs>();
  if (to.is_used(1) || to.is_used(2)) to.fail("its mean or deviation is read");
  OnnxBuilder& b = to.builder;
  if (b.opset() >= 17 && attrs.centered && attrs.has_weight) {
    std::vector<std::string> in{to.in(0), to.in(1)};
    if (attrs.has_bias) in.push_back(to.in(2));
    return to.add("LayerNormalization", in,
        {int_attribute("axis", -1), float_attribute("epsilon", static_cast<float>(attrs.epsilon))});
  }
  std::string y = normalized(to, attrs);
  if (attrs.has_weight) y = b.add("Mul", {y, to.in(1)});
  if (attrs.has_bias) y = b.add("Add", {y, to.in(to.operands() - 1)});
  to.set(0, y);
}

void lower_rope(OnnxLowering& to) {
  const auto& attrs = to.attrs<RopeAttrs>();
  OnnxBuilder& b = to.builder;
  const SymbolicShape& rows = to.in_shape(0);
  const int64_t turned = attrs.heads * attrs.head_size, rest = rows[2].constant - turned;
  const OnnxAttribute last = int_attribute("axis", -1);
  std::vector<std::string> parts{to.in(0)};
  if (rest > 0) parts = b.add_many("Split", {to.in(0), b.ints({turned, rest})}, 2, {last});

  const SymbolicShape flat{rows[0], rows[1], {turned}}, apart{rows[0], rows[1], {attrs.heads}, {attrs.head_size}};
  const int64_t half = attrs.half(), tail = attrs.head_size - 2 * half;
  std::vector<int64_t> sizes{half, half};
  if (tail > 0) sizes.push_back(tail);
  const std::vector<std::string> x =
      b.add_many("Split", {b.reshape(parts[0], flat, apart), b.ints(sizes)}, static_cast<int>(sizes.size()), {last});
  const auto scaled = [&](const std::string& of) {
    const double magnitude = attrs.scaling.magnitude;
    return magnitude == 1 ? of : b.add("Mul", {of, b.tensor(float_tensor({1}, {static_cast<float>(magnitude)}))});
  };
  const std::string angle = angles(to, attrs), cos = scaled(b.add("Cos", {angle})), sin = scaled(b.add("Sin", {angle}));
  const std::string first = b.add("Sub", {b.add("Mul", {x[0], cos}), b.add("Mul", {x[1], sin})});
  const std::string second = b.add("Add", {b.add("Mul", {x[1], cos}), b.add("Mul", {x[0], sin})});
  std::vector<std::string> elements{first, second};
  if (tail > 0) elements.push_back(x[2]);
  const std::string y = b.reshape(b.add("Concat", elements, {last}), apart, flat);
  to.set(0, rest > 0 ? b.add("Concat", {y, parts[1]}, {last}) : y);
}

// A table of buckets by distance up to the largest, which farther ones share.
void lower_distance_buckets(OnnxLowering& to) {
  const auto& attrs = to.attrs<DistanceBucketsAttrs>();
  const int64_t far = attrs.max_distance + 1;
  std::vector<int64_t> buckets;
  for (int64_t distance = -far; distance <= far; ++distance)
    buckets.push_back(distance_bucket(distance, attrs.buckets, attrs.max_distance, attrs.bidirectional));

  OnnxBuilder& b = to.builder;
  const SymbolicSize queries = to.fit([](const Node& node) { return node.attrs.as<DistanceBucketsAttrs>().queries; });
  std::string distance = b.add("Range", {b.integer(0), b.size_scalar(to.out_shape(0)[0]), b.integer(1)});
  distance = b.add("Sub", {distance, b.size(queries + SymbolicSize{-1})});
  if (attrs.has_position) distance = b.add("Sub", {distance, to.in(0)});
  const std::string near = b.add("Max", {b.add("Min", {distance, b.integer(far)}), b.integer(-far)});
  to.add("Gather", {b.ints(buckets), b.add("Add", {near, b.integer(far)})}, {int_attribute("axis", 0)});
}
}  // namespace linnet
