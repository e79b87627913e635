#include "ops/distance_buckets/distance_buckets.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace linnet {
namespace {

std::vector<TensorType> infer(const InferArgs& args) {
  const auto& attrs = args.attrs.as<DistanceBucketsAttrs>();
  expect_inputs(args, attrs.has_position);
  if (attrs.has_position) expect(args.in[0] == TensorType{DType::kI32, {1}}, "got position " + args.in[0].text());
  expect(attrs.queries > 0 && attrs.keys > 0, "no queries or no keys");
  expect(attrs.buckets >= (attrs.bidirectional ? 4 : 2) && attrs.max_distance > attrs.buckets / 2,
         "got " + std::to_string(attrs.buckets) + " buckets up to a distance of " + std::to_string(attrs.max_distance));
  return {{DType::kI32, {attrs.queries + attrs.keys - 1}}};
}

std::vector<Tensor> gradient(const GradientArgs& args) { return std::vector<Tensor>(args.in.size()); }

void run(const KernelArgs& args) {
  const auto& attrs = args.node.attrs.as<DistanceBucketsAttrs>();
  const int64_t position = attrs.has_position ? args.in[0].as<int32_t>()[0] : 0;
  for (int64_t entry = 0; entry < attrs.queries + attrs.keys - 1; ++entry)
    args.out[0].as<int32_t>()[entry] =
        distance_bucket(entry - (attrs.queries - 1) - position, attrs.buckets, attrs.max_distance, attrs.bidirectional);
}

constexpr Kernel kKernels[] = {{"reference", nullptr, nullptr, run}};

}  // namespace

const OpDef kDistanceBuckets{.name = "distance_buckets",
                             .infer = infer,
                             .gradient = gradient,
                             .read_attrs = read_attrs<DistanceBucketsAttrs>,
                             .to_onnx = distance_buckets_to_onnx};
KernelList distance_buckets_kernels() { return kKernels; }

// In float32, as the models were trained: where a logarithm is a whole number its rounding decides.
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
  std::vector<Tensor> in;
  attrs.has_position = position.defined();
  if (attrs.has_position) in.push_back(position);
  return graph.add_one(kDistanceBuckets, in, attrs, where);
}

}  // namespace linnet
