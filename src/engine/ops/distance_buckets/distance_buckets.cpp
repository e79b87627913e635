#include "engine/ops/distance_buckets/distance_buckets.h"
#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace linnet {
namespace {
std::vector<TensorType> infer_distance_buckets(const InferArgs& args) {
  const auto& attrs = args.attrs.as<DistanceBucketsAttrs>();
  expect_inputs(args, attrs.has_position);
  if (attrs.has_position)
    expect(args.in[0].dtype == DType::kI32 && args.in[0].shape.rank() >= 1 && args.in[0].shape.rank() <= 2 &&
               args.in[0].shape[-1] == 1,
        "got position ", args.in[0], ", expected i32[1] or i32[R, 1]");
  expect(attrs.queries > 0 && attrs.keys > 0, "no queries or no keys");
  expect(attrs.buckets >= (attrs.bidirectional ? 4 : 2) && attrs.max_distance > attrs.buckets / 2, "got ",
      attrs.buckets, " buckets up to a distance of ", attrs.max_distance);
  const int64_t entries = attrs.queries + attrs.keys - 1;
  const bool rows = attrs.has_position && args.in[0].shape.rank() == 2;
  return {{DType::kI32, rows ? Shape{args.in[0].shape[0], entries} : Shape{entries}}};
}

void run_distance_buckets(const KernelArgs& args) {
  const auto& attrs = args.attrs<DistanceBucketsAttrs>();
  const int32_t* positions = attrs.has_position ? args.in[0].as<int32_t>() : nullptr;
  const int64_t entries = attrs.queries + attrs.keys - 1, rows = args.out[0].elements() / entries;
  int32_t* first = args.out[0].as<int32_t>();
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t position = positions ? positions[row] : 0, shift = position - (positions ? positions[0] : 0);
    for (int64_t entry = 0; entry < entries; ++entry) {
      // Copies buckets of the first row's distances, without another logarithm.
      const bool known = row > 0 && entry >= shift && entry - shift < entries;
      first[row * entries + entry] = known ? first[entry - shift]
                                           : distance_bucket(entry - (attrs.queries - 1) - position, attrs.buckets,
                                                 attrs.max_distance, attrs.bidirectional);
    }
  }
}
}  // namespace

const OpDef kDistanceBuckets{.name = "distance_buckets", .infer = infer_distance_buckets, .gradient = no_gradient};
LINNET_KERNELS(distance_buckets, {"reference", nullptr, nullptr, run_distance_buckets})

// In float32, like the models' training: rounding decides if a logarithm is a whole number.
int32_t distance_bucket(int64_t distance, int64_t buckets, int64_t max_distance, bool bidirectional) {
  int64_t first = 0;
  if (bidirectional) {
    buckets /= 2;
    if (distance > 0) first = buckets;
    distance = std::abs(distance);
  } else {
    distance = std::max<int64_t>(-distance, 0);
  }
  const int64_t exact = buckets / 2;
  if (distance < exact) return static_cast<int32_t>(first + distance);
  const float ratio = std::log(static_cast<float>(distance) / static_cast<float>(exact));
  const auto range = static_cast<float>(std::log(static_cast<double>(max_distance) / static_cast<double>(exact)));
  const auto wider = static_cast<int64_t>(ratio / range * static_cast<float>(buckets - exact));
  return static_cast<int32_t>(first + std::min(exact + wider, buckets - 1));
}

Tensor distance_buckets(Graph& graph, DistanceBucketsAttrs attrs, Tensor position, SourceLine where) {
  attrs.has_position = position.defined();
  return graph.add_one(kDistanceBuckets, with_defined({}, {position}), attrs, where);
}
}  // namespace linnet
