#include <algorithm>
#include <cstddef>
#include <cstdint>
#include "base/thread_pool.h"
#include "engine/kernels/attention/attention.h"
#include "engine/kernels/attention/attention_blocking.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/attention/attention_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "engine/kernels/attention/attention_passes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {
attention_blocking::ForwardTask forward_task() { return attention::ForwardTask<attention::F32Weights>; }
attention_blocking::BackwardTask backward_task() { return attention::BackwardTask<attention::F32Weights>; }
}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
namespace {
HWY_EXPORT(forward_task);
HWY_EXPORT(backward_task);

// Sums over samples in order, and reverses: row h of `rows` is by i - j, the result's by j - i.
void sum_bias_gradients(const AttentionArgs& args, const float* rows, float* out, ThreadPool& pool) {
  const int64_t entries = args.query_length + args.key_length - 1, row = attention_blocking::bias_gradient_row(args);
  pool.run(args.query_heads, [&](int64_t head, int) {
    float* sum = out + head * entries;
    std::fill_n(sum, entries, 0.0f);
    for (int64_t sample = 0; sample < args.batch; ++sample) {
      const float* own = rows + (sample * args.query_heads + head) * row + entries - 1;
      for (int64_t e = 0; e < entries; ++e) sum[e] += *(own - e);
    }
  });
}
}  // namespace

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
  const auto function = bf16 ? bf16 : HWY_DYNAMIC_DISPATCH(forward_task)();
  pool.run(args.batch * args.kv_heads * layout.chunks.pieces, [&](int64_t task, int worker) {
    function(args, operands, task, reinterpret_cast<float*>(workspace) + worker * layout.size());
  });
}

size_t attention_backward_workspace(const AttentionArgs& args, int threads) {
  const int64_t shared = args.biased ? args.batch * args.query_heads * attention_blocking::bias_gradient_row(args) : 0;
  return static_cast<size_t>(attention_blocking::BackwardLayout(args).size() * threads + shared) * sizeof(float);
}

void attention_backward(const AttentionArgs& args, AttentionRows q, AttentionRows k, AttentionRows v, AttentionRows o,
    const float* lse, AttentionRows d_o, MutableAttentionRows dq, MutableAttentionRows dk, MutableAttentionRows dv,
    float* d_distance_bias, std::byte* workspace, ThreadPool& pool) {
  if (args.batch == 0 || args.query_heads == 0) return;
  attention_blocking::check(args);
  const attention_blocking::BackwardLayout layout(args);
  const auto bf16 = args.precision == Precision::kBf16 ? attention_blocking::bf16_backward_task() : nullptr;
  const auto function = bf16 ? bf16 : HWY_DYNAMIC_DISPATCH(backward_task)();
  float* bias_gradients = args.biased ? reinterpret_cast<float*>(workspace) + layout.size() * pool.size() : nullptr;
  const attention_blocking::BackwardOperands operands{q, k, v, o, d_o, lse, dq, dk, dv, bias_gradients};
  pool.run(args.batch * args.kv_heads, [&](int64_t task, int worker) {
    function(args, operands, task, reinterpret_cast<float*>(workspace) + worker * layout.size());
  });
  if (args.biased) sum_bias_gradients(args, bias_gradients, d_distance_bias, pool);
}
}  // namespace linnet
#endif
