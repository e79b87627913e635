#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include "base/thread_pool.h"
#include "engine/kernels/attention/attention.h"
#include "engine/kernels/attention/attention_blocking.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/attention/attention_forward_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "engine/kernels/attention/attention_forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

void forward_task(const AttentionArgs& args, const attention_blocking::ForwardLayout& layout,
                  const attention_blocking::ForwardOperands& x, int64_t task, float* scratch) {
  attention::ForwardTask<attention::F32Weights>(args, layout, x, task, scratch);
}

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {

HWY_EXPORT(forward_task);

size_t attention_forward_workspace(const AttentionArgs& args, int threads) {
  return static_cast<size_t>(attention_blocking::ForwardLayout(args).size() * threads) * sizeof(float);
}

void attention_forward(const AttentionArgs& args, AttentionRows q, AttentionRows k, AttentionRows v,
                       MutableAttentionRows o, float* lse, std::byte* workspace, ThreadPool& pool) {
  if (args.batch == 0 || args.query_length == 0 || args.query_heads == 0) return;
  attention_blocking::check(args);
  const attention_blocking::ForwardLayout layout(args);
  const attention_blocking::ForwardOperands operands{q, k, v, o, lse};
  const auto bf16 = args.precision == Precision::kBf16 ? attention_blocking::bf16_forward_task() : nullptr;
  const auto function = bf16 ? bf16 : HWY_DYNAMIC_DISPATCH(forward_task);
  pool.run(args.batch * args.kv_heads * layout.chunks.pieces, [&](int64_t task, int worker) {
    function(args, layout, operands, task, reinterpret_cast<float*>(workspace) + worker * layout.size());
  });
}

}  // namespace linnet
#endif
