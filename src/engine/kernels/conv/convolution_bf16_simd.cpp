// Convolutions with products of bf16 pairs (gemm_bf16-inl.h).
#include <hwy/cache_control.h>
#include "base/thread_pool.h"
#include "engine/kernels/conv/convolution_layout.h"
#include "engine/kernels/gemm/gemm.h"

#define HWY_TARGET_INCLUDE "engine/kernels/conv/convolution_bf16_simd.cpp"
#include <hwy/foreach_target.h>

// As gemm_bf16_simd.cpp: Highway's AVX-512 target and one extension more.
#if HWY_TARGET == HWY_AVX3
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16")
#endif
#include "engine/kernels/conv/convolution_taps-inl.h"
#include "engine/kernels/conv/winograd-inl.h"
#include "engine/kernels/gemm/gemm_bf16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {
#if HWY_TARGET == HWY_AVX3
using namespace convolution;

void taps(const TapCall& call, ThreadPool& pool) {
  (call.result.is_bf16 ? run_taps<tile::Bf16, Bfloat16> : run_taps<tile::Bf16, float>)(call, pool);
}
void winograd(const WinogradCall& call, ThreadPool& pool) {
  (call.result.is_bf16 ? run_winograd<Filtering<2>, tile::Bf16, Bfloat16, Bfloat16>
                       : run_winograd<Filtering<2>, tile::Bf16, Bfloat16, float>)(call, pool);
}

const ConvolutionKernels* kernels() {
  static constexpr ConvolutionKernels kKernels{pack_all_weights<tile::Bf16>, taps, run_weights<tile::Bf16>,
      pack_winograd_filters<Filtering<2>, tile::Bf16>, winograd,
      run_winograd_weights<Filtering<2>, tile::Bf16, Bfloat16>};
  return gemm_has_bf16() ? &kKernels : nullptr;
}
#else
const ConvolutionKernels* kernels() { return nullptr; }
#endif
}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#if HWY_TARGET == HWY_AVX3
HWY_POP_ATTRIBUTES
#endif

#if HWY_ONCE
namespace linnet {
HWY_EXPORT(kernels);

const ConvolutionKernels* bf16_convolution_kernels() { return HWY_DYNAMIC_DISPATCH(kernels)(); }
}  // namespace linnet
#endif
