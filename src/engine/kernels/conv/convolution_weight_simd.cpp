// The weight gradient (convolution_weight-inl.h), in fp32.
#include "base/thread_pool.h"
#include "engine/kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/conv/convolution_weight_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "engine/kernels/conv/convolution_weight-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

using namespace convolution;
using namespace convolution_layout;

void convolution_weights(const WeightCall& call, ThreadPool& pool) { run_weights<tile::F32>(call, pool); }

void add_partials(const WeightProblem& p, float* sums, float* dweight, ThreadPool& pool) {
  const bool turned = p.filters_are_lanes();
  float* const total = turned ? sums : dweight;
  if (p.partials > 1 || !turned)
    for_ranges(pool, p.elements, p.partials, [&](int64_t begin, int64_t end) {
      AddRows(p.partials, p.elements, end - begin, sums + begin, false, total + begin);
    });
  if (!turned) return;
  const int64_t filters = p.s.filters, length = p.elements / filters;
  for_ranges(pool, filters, length, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o)
      for (int64_t i = 0; i < length; ++i) dweight[o * length + i] = total[i * filters + o];
  });
}

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
namespace {

HWY_EXPORT(convolution_weights);
HWY_EXPORT(add_partials);

}  // namespace

void convolution_weights_by_pixels(const convolution_layout::WeightProblem& problem, const float* x, const float* dy,
                                   float* dweight, float* workspace, ThreadPool& pool) {
  const bool parts = problem.has_sums();
  const WeightCall call{problem, x, dy, parts ? workspace : dweight, workspace + problem.shared_floats()};
  HWY_DYNAMIC_DISPATCH(convolution_weights)(call, pool);
  if (parts) add_weight_partials(problem, workspace, dweight, pool);
}

void add_weight_partials(const convolution_layout::WeightProblem& problem, float* sums, float* dweight,
                         ThreadPool& pool) {
  HWY_DYNAMIC_DISPATCH(add_partials)(problem, sums, dweight, pool);
}

}  // namespace linnet
#endif
