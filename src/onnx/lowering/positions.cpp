// What depends on positions in a sequence: rotary embeddings and buckets of distances.
#include "engine/ops/distance_buckets/distance_buckets.h"
#include "engine/ops/rope/rope.h"
#include "onnx/lowering/lowering.h"

namespace linnet {
namespace {

// The angles of all positions: float [B or 1, T, 1, half].
std::string angles(OnnxLowering& to, const RopeAttrs& attrs) {
  OnnxBuilder& b = to.builder;
  std::string positions;
  if (attrs.has_positions)
    positions = b.unsqueeze(to.in(1), {2, 3});
  else
    positions = b.unsqueeze(b.add("Range", {b.integer(0), b.size_scalar(to.in_shape(0)[1]), b.integer(1)}), {0, 2, 3});
  std::vector<float> frequencies;
  for (int64_t i = 0; i < attrs.half(); ++i)
    frequencies.push_back(static_cast<float>(rope_frequency(attrs, i) * (attrs.inverse ? -1 : 1)));
  return b.add("Mul", {b.cast(positions, OnnxElement::kFloat), b.tensor(float_tensor({attrs.half()}, frequencies))});
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

// A table of the buckets of all distances up to the largest, which all farther ones share.
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

}  // namespace

std::span<const OnnxLoweringRow> position_lowerings() {
  static constexpr OnnxLoweringRow kRows[] = {{"distance_buckets", lower_distance_buckets}, {"rope", lower_rope}};
  return kRows;
}

}  // namespace linnet
