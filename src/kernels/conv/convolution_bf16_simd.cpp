#include <hwy/cache_control.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/conv/convolution_bf16.h"
#include "kernels/conv/convolution_calls.h"
#include "kernels/gemm/gemm_bf16.h"
#include "kernels/gemm/gemm_tasks.h"
#include "kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/conv/convolution_bf16_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// As gemm_bf16_simd.cpp: Highway's AVX-512 target and one extension more.
#if HWY_TARGET == HWY_AVX3
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16")
#endif
#include "kernels/conv/convolution_taps-inl.h"
#include "kernels/conv/convolution_weight-inl.h"
#include "kernels/gemm/gemm_bf16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_AVX3
void pack_pairs(const PackCall& call, ThreadPool& pool) { convolution::pack_all_weights<tile::Bf16>(call, pool); }
void taps_of_pairs(const TapCall& call, ThreadPool& pool) { convolution::run_taps<tile::Bf16>(call, pool); }
void weights_of_pairs(const WeightCall& call, ThreadPool& pool) { convolution::run_weights<tile::Bf16>(call, pool); }
#else
[[noreturn]] void fail_without() { fail_internal("a convolution in bf16 on a processor without"); }
void pack_pairs(const PackCall&, ThreadPool&) { fail_without(); }
void taps_of_pairs(const TapCall&, ThreadPool&) { fail_without(); }
void weights_of_pairs(const WeightCall&, ThreadPool&) { fail_without(); }
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

using convolution_layout::TapProblem;
using convolution_layout::WeightProblem;

HWY_EXPORT(pack_pairs);
HWY_EXPORT(taps_of_pairs);
HWY_EXPORT(weights_of_pairs);

// An image of pairs of channels.
TapProblem pairs_of(ConvolutionSizes sizes, ConvolutionPass pass) {
  const bool gradient = pass == ConvolutionPass::kInputGradient;
  (gradient ? sizes.filters : sizes.channels) /= 2;
  return {sizes, gradient};
}

void run_taps(const ConvolutionSizes& sizes, ConvolutionPass pass, const Bfloat16* source, const float* packed,
              float* result, std::byte* workspace, ThreadPool& pool, const ConvolutionEpilogue& epilogue) {
  const TapProblem problem = pairs_of(sizes, pass);
  const auto* pairs = reinterpret_cast<const float*>(source);  // they are copied, and never calculated with as such
  HWY_DYNAMIC_DISPATCH(taps_of_pairs)
  (TapCall{problem, pairs, packed, result, reinterpret_cast<float*>(workspace), epilogue}, pool);
}

}  // namespace

bool has_bf16_convolution(const ConvolutionSizes& s, ConvolutionPass pass) {
  const ConvolutionMethod method = convolution_method(s);
  const int64_t paired = pass == ConvolutionPass::kForward         ? s.channels
                         : pass == ConvolutionPass::kInputGradient ? s.filters
                                                                   : 2;
  const bool any = s.images * s.height * s.width * s.channels * s.filters * s.taps() * s.out_height * s.out_width > 0;
  return any && s.groups == 1 && paired % 2 == 0 && gemm_has_bf16() &&
         (method == ConvolutionMethod::kImplicit || method == ConvolutionMethod::kWinograd);
}

int64_t bf16_packed_filter_floats(const ConvolutionSizes& s, ConvolutionPass pass) {
  return pass == ConvolutionPass::kWeightGradient ? 0 : pairs_of(s, pass).packed_floats();
}

void pack_bf16_convolution_filters(const ConvolutionSizes& s, ConvolutionPass pass, const float* weight, float* packed,
                                   ThreadPool& pool) {
  const TapProblem problem = pairs_of(s, pass);
  HWY_DYNAMIC_DISPATCH(pack_pairs)(PackCall{problem, weight, packed}, pool);
}

size_t bf16_convolution_workspace(const ConvolutionSizes& s, ConvolutionPass pass, int threads) {
  const auto bytes = [](int64_t floats) { return static_cast<size_t>(floats) * sizeof(float); };
  if (pass != ConvolutionPass::kWeightGradient) return bytes(threads * pairs_of(s, pass).scratch_floats());
  const WeightProblem problem(s, 2);
  return bytes(problem.shared_floats() + threads * problem.scratch_floats());
}

void bf16_convolution_forward(const ConvolutionSizes& s, const Bfloat16* x, const float* packed, float* y,
                              std::byte* workspace, ThreadPool& pool, const ConvolutionEpilogue& epilogue) {
  run_taps(s, ConvolutionPass::kForward, x, packed, y, workspace, pool, epilogue);
}

void bf16_convolution_input_gradient(const ConvolutionSizes& s, const Bfloat16* dy, const float* packed, float* dx,
                                     std::byte* workspace, ThreadPool& pool) {
  run_taps(s, ConvolutionPass::kInputGradient, dy, packed, dx, workspace, pool, {});
}

void bf16_convolution_weight_gradient(const ConvolutionSizes& s, const Bfloat16* x, const Bfloat16* dy, float* dweight,
                                      std::byte* workspace, ThreadPool& pool) {
  const WeightProblem problem(s, 2);
  auto* const sums = reinterpret_cast<float*>(workspace);
  const bool parts = problem.partials > 1;
  const WeightCall call{problem, x, dy, parts ? sums : dweight, sums + problem.shared_floats()};
  HWY_DYNAMIC_DISPATCH(weights_of_pairs)(call, pool);
  if (parts) add_weight_partials(problem, sums, dweight, pool);
}

}  // namespace linnet
#endif
