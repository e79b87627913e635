// Convolutions with products of floats.
#include "engine/kernels/conv/convolution_layout.h"

#define HWY_TARGET_INCLUDE "engine/kernels/conv/convolution_simd.cpp"
#include <hwy/foreach_target.h>
#include "engine/kernels/conv/convolution_taps-inl.h"
#include "engine/kernels/conv/winograd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {
using namespace convolution;

void pack_winograd(const WinogradPackCall& call, ThreadPool& pool) {
  (call.problem.tile == 4 ? pack_winograd_filters<Filtering<4>, tile::F32Pack>
                          : pack_winograd_filters<Filtering<2>, tile::F32Pack>)(call, pool);
}
void winograd(const WinogradCall& call, ThreadPool& pool) {
  (call.problem.tile == 4 ? run_winograd<Filtering<4>, tile::F32Pack, float, float>
                          : run_winograd<Filtering<2>, tile::F32Pack, float, float>)(call, pool);
}
void winograd_weights(const WinogradWeightCall& call, ThreadPool& pool) {
  (call.problem.tile == 4 ? run_winograd_weights<Filtering<4>, tile::F32, float>
                          : run_winograd_weights<Filtering<2>, tile::F32, float>)(call, pool);
}

const ConvolutionKernels* kernels() {
  static constexpr ConvolutionKernels kKernels{pack_all_weights<tile::F32Pack>, run_taps<tile::F32Pack, float>,
      run_weights<tile::F32>, pack_winograd, winograd, winograd_weights};
  return &kKernels;
}

void epilogue_alone(const ConvolutionEpilogue& epilogue, int64_t pixels, int64_t filters, float* y, ThreadPool& pool) {
  constexpr int64_t kFloats = 1 << 14;  // of a task
  const int64_t rows = std::max<int64_t>(1, kFloats / std::max<int64_t>(1, filters));
  for_steps(pool, pixels, rows, [&](int64_t first, int64_t end) {
    ApplyEpilogue(epilogue, 0, filters, end - first, y + first * filters, filters, first * filters);
  });
}
}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
HWY_EXPORT(kernels);
HWY_EXPORT(epilogue_alone);

const ConvolutionKernels* fp32_convolution_kernels() { return HWY_DYNAMIC_DISPATCH(kernels)(); }

void convolution_epilogue(
    const ConvolutionEpilogue& epilogue, int64_t pixels, int64_t filters, float* y, ThreadPool& pool) {
  HWY_DYNAMIC_DISPATCH(epilogue_alone)(epilogue, pixels, filters, y, pool);
}
}  // namespace linnet
#endif
