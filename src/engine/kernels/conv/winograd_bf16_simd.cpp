// Winograd's minimal filtering with products of bf16 pairs (winograd_taps-inl.h, winograd_weight-inl.h).
#include <hwy/cache_control.h>
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>
#include "base/error.h"
#include "base/thread_pool.h"
#include "engine/kernels/conv/convolution_calls.h"
#include "engine/kernels/gemm/gemm_tasks.h"
#include "engine/kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/conv/winograd_bf16_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// As gemm_bf16_simd.cpp: Highway's AVX-512 target and one extension more.
#if HWY_TARGET == HWY_AVX3
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16")
#endif
#include "engine/kernels/conv/winograd_taps-inl.h"
#include "engine/kernels/conv/winograd_weight-inl.h"
#include "engine/kernels/gemm/gemm_bf16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_AVX3
void pack_pairs(const WinogradPackCall& call, ThreadPool& pool) {
  convolution::pack_winograd_filters<convolution::Filtering<2>, tile::Bf16>(call, pool);
}
void winograd_of_pairs(const WinogradCall& call, bool stores_bf16, ThreadPool& pool) {
  if (stores_bf16) convolution::run_winograd<convolution::Filtering<2>, tile::Bf16, Bfloat16, Bfloat16>(call, pool);
  else convolution::run_winograd<convolution::Filtering<2>, tile::Bf16, Bfloat16, float>(call, pool);
}
void weights_of_pairs(const WinogradWeightCall& call, ThreadPool& pool) {
  convolution::run_winograd_weights<convolution::Filtering<2>, tile::Bf16, Bfloat16>(call, pool);
}
#else
[[noreturn]] void fail_without() { fail_internal("a convolution in bf16 on a processor without bf16 instructions"); }
void pack_pairs(const WinogradPackCall&, ThreadPool&) { fail_without(); }
void winograd_of_pairs(const WinogradCall&, bool, ThreadPool&) { fail_without(); }
void weights_of_pairs(const WinogradWeightCall&, ThreadPool&) { fail_without(); }
#endif

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#if HWY_TARGET == HWY_AVX3
HWY_POP_ATTRIBUTES
#endif

#if HWY_ONCE
namespace linnet {
namespace {

HWY_EXPORT(pack_pairs);
HWY_EXPORT(winograd_of_pairs);
HWY_EXPORT(weights_of_pairs);

}  // namespace

void pack_bf16_winograd(const convolution_layout::WinogradProblem& problem, const float* weight, float* packed,
                        float* scratch, ThreadPool& pool) {
  HWY_DYNAMIC_DISPATCH(pack_pairs)(WinogradPackCall{problem, weight, packed, scratch}, pool);
}

void convolution_by_bf16_winograd(const convolution_layout::WinogradProblem& problem, const Bfloat16* source,
                                  const float* packed, MutableStoredFloats result, float* scratch, ThreadPool& pool,
                                  const ConvolutionEpilogue& epilogue) {
  const WinogradCall call{problem, source, packed, result.data, scratch, epilogue};
  HWY_DYNAMIC_DISPATCH(winograd_of_pairs)(call, result.is_bf16, pool);
}

void convolution_weights_by_bf16_winograd(const convolution_layout::WinogradWeightProblem& problem, const Bfloat16* x,
                                          const Bfloat16* dy, float* dweight, float* workspace, ThreadPool& pool) {
  const WinogradWeightCall call{problem, x, dy, workspace, dweight, workspace + problem.shared_floats()};
  HWY_DYNAMIC_DISPATCH(weights_of_pairs)(call, pool);
}

}  // namespace linnet
#endif
