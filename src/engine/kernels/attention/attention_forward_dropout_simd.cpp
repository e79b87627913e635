// The forward pass of attention with dropout, which training alone has: a file of its own, so that a library without
// training leaves it out (src/api/runtime).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "engine/kernels/attention/attention.h"
#include "engine/kernels/attention/attention_blocking.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/attention/attention_forward_dropout_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/attention/attention_forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

void dropout_task(const AttentionArgs& args, const attention_blocking::ForwardLayout& layout,
                  const attention_blocking::ForwardOperands& x, int64_t task, float* scratch) {
  attention::ForwardTask<attention::F32Weights, true>(args, layout, x, task, scratch);
}

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::attention_blocking {

HWY_EXPORT(dropout_task);

ForwardTask dropout_forward_task() { return HWY_DYNAMIC_DISPATCH(dropout_task); }

}  // namespace linnet::attention_blocking
#endif
