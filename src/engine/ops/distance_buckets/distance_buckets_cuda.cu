// T5's buckets of distances. The host's float32 logarithm gives a bucket's beginning, not a device's rounding.
#include "engine/kernels/cuda/launch.cuh"
#include "engine/ops/distance_buckets/distance_buckets.h"

namespace linnet {
namespace {
constexpr int kMaxBuckets = 256;

// The smallest distance of each bucket of one direction, ascending.
struct BucketStarts {
  int32_t count;
  int32_t at[kMaxBuckets];
};

LINNET_DEVICE void find_bucket(int64_t i, int64_t entries, int64_t queries, bool bidirectional, BucketStarts starts,
    const int32_t* positions, int32_t* to) {
  const auto [row, entry] = divided(i, entries);
  int64_t distance = static_cast<int64_t>(entry) - (queries - 1) - (positions ? positions[row] : 0);
  int32_t first = 0;
  if (bidirectional) {
    if (distance > 0) first = starts.count;
    distance = distance < 0 ? -distance : distance;
  } else {
    distance = distance < 0 ? -distance : 0;
  }
  int32_t bucket = 0;
  while (bucket + 1 < starts.count && starts.at[bucket + 1] <= distance) ++bucket;
  to[i] = first + bucket;
}

int64_t one_direction(const DistanceBucketsAttrs& attrs) {
  return attrs.bidirectional ? attrs.buckets / 2 : attrs.buckets;
}

// Buckets do not fall with the distance: each start is found by bisection.
BucketStarts bucket_starts(const DistanceBucketsAttrs& attrs) {
  BucketStarts starts{.count = static_cast<int32_t>(one_direction(attrs)), .at = {}};
  const auto bucket_of = [&](int64_t distance) {
    return distance_bucket(-distance, attrs.buckets, attrs.max_distance, attrs.bidirectional);
  };
  for (int32_t bucket = 1; bucket < starts.count; ++bucket) {
    int64_t below = starts.at[bucket - 1], from = INT32_MAX;
    while (from - below > 1) (bucket_of((below + from) / 2) >= bucket ? from : below) = (below + from) / 2;
    starts.at[bucket] = static_cast<int32_t>(bucket_of(below) >= bucket ? below : from);
  }
  return starts;
}

bool supports(const KernelQuery& query) { return one_direction(query.attrs<DistanceBucketsAttrs>()) <= kMaxBuckets; }

void run(const KernelArgs& args) {
  const auto& attrs = args.attrs<DistanceBucketsAttrs>();
  launch_elements<find_bucket>(args.device, args.out[0].elements(), attrs.queries + attrs.keys - 1, attrs.queries,
      attrs.bidirectional, bucket_starts(attrs), attrs.has_position ? args.in[0].as<int32_t>() : nullptr,
      args.out[0].as<int32_t>());
}
}  // namespace

LINNET_KERNELS(distance_buckets_cuda, {"starts", supports, nullptr, run})
}  // namespace linnet
