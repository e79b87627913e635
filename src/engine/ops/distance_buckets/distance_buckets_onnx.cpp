// A table of the buckets of all distances up to the largest, which all farther ones share.
#include "formats/onnx/lowering.h"
#include "engine/ops/distance_buckets/distance_buckets.h"

namespace linnet {

void distance_buckets_to_onnx(OnnxLowering& to) {
  const auto& attrs = to.node().attrs.as<DistanceBucketsAttrs>();
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
  to.set(0, b.add("Gather", {b.ints(buckets), b.add("Add", {near, b.integer(far)})}, {int_attribute("axis", 0)}));
}

}  // namespace linnet
