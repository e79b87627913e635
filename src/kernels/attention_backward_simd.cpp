#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/thread_pool.h"
#include "kernels/attention.h"
#include "kernels/attention_blocking.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_backward_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/attention_backward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

void backward_task(const AttentionArgs& args, const attention_blocking::BackwardLayout& layout,
                   const attention_blocking::BackwardOperands& x, int64_t task, float* scratch) {
  attention::BackwardTask<attention::F32Weights>(args, layout, x, task, scratch);
}

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {

HWY_EXPORT(backward_task);

size_t attention_backward_workspace(const AttentionArgs& args, int threads) {
  return static_cast<size_t>(attention_blocking::BackwardLayout(args).size() * threads) * sizeof(float);
}

void attention_backward(const AttentionArgs& args, AttentionRows q, AttentionRows k, AttentionRows v, AttentionRows o,
                        const float* lse, AttentionRows d_o, MutableAttentionRows dq, MutableAttentionRows dk,
                        MutableAttentionRows dv, std::byte* workspace, ThreadPool& pool) {
  if (args.batch == 0 || args.query_heads == 0) return;
  attention_blocking::check(args);
  const attention_blocking::BackwardLayout layout(args);
  const auto bf16 = args.precision == Precision::kBf16 ? attention_blocking::bf16_backward_task() : nullptr;
  const auto function = bf16 ? bf16 : HWY_DYNAMIC_DISPATCH(backward_task);
  const attention_blocking::BackwardOperands operands{q, k, v, o, d_o, lse, dq, dk, dv};
  pool.run(args.batch * args.kv_heads, [&](int64_t task, int worker) {
    function(args, layout, operands, task, reinterpret_cast<float*>(workspace) + worker * layout.size());
  });
}

}  // namespace linnet
#endif
