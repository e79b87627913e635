// The gradient of filters by Winograd's minimal filtering (winograd_weight-inl.h), in fp32.
#include "base/thread_pool.h"
#include "engine/kernels/conv/convolution_calls.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/conv/winograd_weight_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "engine/kernels/conv/winograd_weight-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

using namespace convolution;

void winograd_weights(const WinogradWeightCall& call, ThreadPool& pool) {
  (call.problem.tile == 4 ? run_winograd_weights<Filtering<4>, tile::F32, float>
                          : run_winograd_weights<Filtering<2>, tile::F32, float>)(call, pool);
}

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
namespace {

HWY_EXPORT(winograd_weights);

}  // namespace

void convolution_weights_by_winograd(const convolution_layout::WinogradWeightProblem& problem, const float* x,
                                     const float* dy, float* dweight, float* workspace, ThreadPool& pool) {
  const WinogradWeightCall call{problem, x, dy, workspace, dweight, workspace + problem.shared_floats()};
  HWY_DYNAMIC_DISPATCH(winograd_weights)(call, pool);
}

}  // namespace linnet
#endif
