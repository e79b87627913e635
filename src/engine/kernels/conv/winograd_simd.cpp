// The forward pass and the input gradient by Winograd's minimal filtering (winograd_taps-inl.h), in fp32.
#include "base/thread_pool.h"
#include "engine/kernels/conv/convolution_calls.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/conv/winograd_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "engine/kernels/conv/winograd_taps-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

using namespace convolution;

void winograd_pack(const WinogradPackCall& call, ThreadPool& pool) {
  (call.problem.tile == 4 ? pack_winograd_filters<Filtering<4>, tile::F32Pack>
                          : pack_winograd_filters<Filtering<2>, tile::F32Pack>)(call, pool);
}
void winograd(const WinogradCall& call, ThreadPool& pool) {
  (call.problem.tile == 4 ? run_winograd<Filtering<4>, tile::F32Pack, float, float>
                          : run_winograd<Filtering<2>, tile::F32Pack, float, float>)(call, pool);
}

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
namespace {

HWY_EXPORT(winograd_pack);
HWY_EXPORT(winograd);

}  // namespace

void pack_winograd(const convolution_layout::WinogradProblem& problem, const float* weight, float* packed,
                   float* scratch, ThreadPool& pool) {
  HWY_DYNAMIC_DISPATCH(winograd_pack)(WinogradPackCall{problem, weight, packed, scratch}, pool);
}

void convolution_by_winograd(const convolution_layout::WinogradProblem& problem, const float* source,
                             const float* packed, float* result, float* scratch, ThreadPool& pool,
                             const ConvolutionEpilogue& epilogue) {
  HWY_DYNAMIC_DISPATCH(winograd)(WinogradCall{problem, source, packed, result, scratch, epilogue}, pool);
}

}  // namespace linnet
#endif
