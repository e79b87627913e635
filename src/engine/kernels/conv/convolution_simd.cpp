// The forward pass and the input gradient (convolution_taps-inl.h), in fp32.
#include <algorithm>
#include "engine/kernels/conv/convolution.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/conv/convolution_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "engine/kernels/conv/convolution_taps-inl.h"

#ifndef LINNET_KERNELS_CONVOLUTION_CALL
#define LINNET_KERNELS_CONVOLUTION_CALL
namespace linnet {
namespace {

struct EpilogueCall {
  const ConvolutionEpilogue& epilogue;
  int64_t pixels, filters;
  float* y;
};

}  // namespace
}  // namespace linnet
#endif

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

using namespace convolution;

void pack_weights(const PackCall& call, ThreadPool& pool) { pack_all_weights<tile::F32Pack>(call, pool); }
void convolution_taps(const TapCall& call, ThreadPool& pool) { run_taps<tile::F32Pack, float>(call, pool); }

void epilogue_alone(const EpilogueCall& call, ThreadPool& pool) {
  constexpr int64_t kFloats = 1 << 14;  // of a task
  const int64_t rows = std::max<int64_t>(1, kFloats / std::max<int64_t>(1, call.filters));
  pool.run(ceil_div(call.pixels, rows), [&](int64_t task, int) {
    const int64_t first = task * rows;
    ApplyEpilogue(call.epilogue, 0, call.filters, std::min(rows, call.pixels - first), call.y + first * call.filters,
                  call.filters, first * call.filters);
  });
}

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
namespace {

HWY_EXPORT(pack_weights);
HWY_EXPORT(convolution_taps);
HWY_EXPORT(epilogue_alone);

}  // namespace

void pack_taps(const convolution_layout::TapProblem& problem, const float* weight, float* packed, ThreadPool& pool) {
  HWY_DYNAMIC_DISPATCH(pack_weights)(PackCall{problem, weight, packed}, pool);
}

void convolution_by_packed_taps(const convolution_layout::TapProblem& problem, const float* source, const float* packed,
                                float* result, float* scratch, ThreadPool& pool, const ConvolutionEpilogue& epilogue) {
  const TapCall call{problem, source, packed, result, scratch, epilogue};
  HWY_DYNAMIC_DISPATCH(convolution_taps)(call, pool);
}

void convolution_epilogue(const ConvolutionEpilogue& epilogue, int64_t pixels, int64_t filters, float* y,
                          ThreadPool& pool) {
  HWY_DYNAMIC_DISPATCH(epilogue_alone)(EpilogueCall{epilogue, pixels, filters, y}, pool);
}

}  // namespace linnet
#endif
