#include <hwy/cache_control.h>
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>
#include "base/error.h"
#include "base/thread_pool.h"
#include "engine/kernels/conv/convolution_bf16.h"
#include "engine/kernels/conv/convolution_calls.h"
#include "engine/kernels/gemm/gemm_bf16.h"
#include "engine/kernels/gemm/gemm_tasks.h"
#include "engine/kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/conv/convolution_bf16_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// As gemm_bf16_simd.cpp: Highway's AVX-512 target and one extension more.
#if HWY_TARGET == HWY_AVX3
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16")
#endif
#include "engine/kernels/conv/convolution_taps-inl.h"
#include "engine/kernels/conv/convolution_weight-inl.h"
#include "engine/kernels/gemm/gemm_bf16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_AVX3
void pack_pairs(const PackCall& call, ThreadPool& pool) { convolution::pack_all_weights<tile::Bf16>(call, pool); }
void taps_of_pairs(const TapCall& call, bool stores_bf16, ThreadPool& pool) {
  if (stores_bf16) convolution::run_taps<tile::Bf16, Bfloat16>(call, pool);
  else convolution::run_taps<tile::Bf16, float>(call, pool);
}
void weights_of_pairs(const WeightCall& call, ThreadPool& pool) { convolution::run_weights<tile::Bf16>(call, pool); }
#else
[[noreturn]] void fail_without() { fail_internal("a convolution in bf16 on a processor without bf16 instructions"); }
void pack_pairs(const PackCall&, ThreadPool&) { fail_without(); }
void taps_of_pairs(const TapCall&, bool, ThreadPool&) { fail_without(); }
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
using convolution_layout::WinogradProblem;
using convolution_layout::WinogradWeightProblem;

HWY_EXPORT(pack_pairs);
HWY_EXPORT(taps_of_pairs);
HWY_EXPORT(weights_of_pairs);

// An image of pairs of channels.
TapProblem pairs_of(ConvolutionSizes sizes, ConvolutionPass pass) {
  const bool gradient = pass == ConvolutionPass::kInputGradient;
  int64_t& channels = gradient ? sizes.filters : sizes.channels;
  const bool half_pair = channels % 2 == 1;
  channels = (channels + 1) / 2;
  return {sizes, gradient, half_pair};
}

WinogradProblem winograd_of_pairs(const ConvolutionSizes& sizes, ConvolutionPass pass) {
  return {sizes, pass == ConvolutionPass::kInputGradient, 2};
}

// Images and channels in pairs may be computed in another way than in fp32.
bool is_winograd(const ConvolutionSizes& s) { return convolution_layout::winograd_tile(s, 2) > 0; }
bool has_winograd_weights(const ConvolutionSizes& s) { return convolution_layout::winograd_weight_tile(s, 2) > 0; }

void run_packed(const ConvolutionSizes& sizes, ConvolutionPass pass, const Bfloat16* source, const float* packed,
                MutableStoredFloats result, std::byte* workspace, ThreadPool& pool,
                const ConvolutionEpilogue& epilogue) {
  auto* const scratch = reinterpret_cast<float*>(workspace);
  if (is_winograd(sizes))
    return convolution_by_bf16_winograd(winograd_of_pairs(sizes, pass), source, packed, result, scratch, pool,
                                        epilogue);
  const TapProblem problem = pairs_of(sizes, pass);
  const auto* pairs = reinterpret_cast<const float*>(source);  // they are copied, and never calculated with as such
  const TapCall call{problem, pairs, packed, result.data, scratch, epilogue};
  HWY_DYNAMIC_DISPATCH(taps_of_pairs)(call, result.is_bf16, pool);
}

}  // namespace

bool has_bf16_convolution(const ConvolutionSizes& s, ConvolutionPass pass) {
  const ConvolutionMethod method = convolution_method(s);
  const bool paired = pass == ConvolutionPass::kForward         ? s.channels > 1
                      : pass == ConvolutionPass::kInputGradient ? s.filters % 2 == 0
                                                                : true;
  const bool any = s.images * s.height * s.width * s.channels * s.filters * s.taps() * s.out_height * s.out_width > 0;
  return HWY_ARCH_X86 && any && s.groups == 1 && paired && gemm_has_bf16() && method != ConvolutionMethod::kProduct &&
         method != ConvolutionMethod::kDepthwise;
}

int64_t bf16_packed_filter_floats(const ConvolutionSizes& s, ConvolutionPass pass) {
  if (pass == ConvolutionPass::kWeightGradient) return 0;
  return is_winograd(s) ? winograd_of_pairs(s, pass).packed_floats() : pairs_of(s, pass).packed_floats();
}

void pack_bf16_convolution_filters(const ConvolutionSizes& s, ConvolutionPass pass, const float* weight, float* packed,
                                   std::byte* workspace, ThreadPool& pool) {
  if (is_winograd(s))
    return pack_bf16_winograd(winograd_of_pairs(s, pass), weight, packed, reinterpret_cast<float*>(workspace), pool);
  const TapProblem problem = pairs_of(s, pass);
  HWY_DYNAMIC_DISPATCH(pack_pairs)(PackCall{problem, weight, packed}, pool);
}

size_t bf16_convolution_workspace(const ConvolutionSizes& s, ConvolutionPass pass, int threads) {
  const auto bytes = [](int64_t floats) { return static_cast<size_t>(floats) * sizeof(float); };
  const auto all = [&](const auto& problem) {
    return bytes(problem.shared_floats() + threads * problem.scratch_floats());
  };
  if (pass == ConvolutionPass::kWeightGradient)
    return has_winograd_weights(s) ? all(WinogradWeightProblem(s, 2)) : all(WeightProblem(s, 2));
  // Filters are packed elsewhere.
  return bytes(threads *
               (is_winograd(s) ? winograd_of_pairs(s, pass).scratch_floats() : pairs_of(s, pass).scratch_floats()));
}

bool bf16_convolution_stores_bf16(const ConvolutionSizes& s, ConvolutionPass pass) {
  return is_winograd(s) || pairs_of(s, pass).sums_are_whole();
}

void bf16_convolution_forward(const ConvolutionSizes& s, const Bfloat16* x, const float* packed, MutableStoredFloats y,
                              std::byte* workspace, ThreadPool& pool, const ConvolutionEpilogue& epilogue) {
  run_packed(s, ConvolutionPass::kForward, x, packed, y, workspace, pool, epilogue);
}

void bf16_convolution_input_gradient(const ConvolutionSizes& s, const Bfloat16* dy, const float* packed,
                                     MutableStoredFloats dx, std::byte* workspace, ThreadPool& pool) {
  run_packed(s, ConvolutionPass::kInputGradient, dy, packed, dx, workspace, pool, {});
}

void bf16_convolution_weight_gradient(const ConvolutionSizes& s, const Bfloat16* x, const Bfloat16* dy, float* dweight,
                                      std::byte* workspace, ThreadPool& pool) {
  auto* const sums = reinterpret_cast<float*>(workspace);
  if (has_winograd_weights(s))
    return convolution_weights_by_bf16_winograd(WinogradWeightProblem(s, 2), x, dy, dweight, sums, pool);
  const WeightProblem problem(s, 2);
  const bool parts = problem.has_sums();
  const WeightCall call{problem, x, dy, parts ? sums : dweight, sums + problem.shared_floats()};
  HWY_DYNAMIC_DISPATCH(weights_of_pairs)(call, pool);
  if (parts) add_weight_partials(problem, sums, dweight, pool);
}

}  // namespace linnet
#endif
