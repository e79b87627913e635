// Attention of few queries whose keys and values are bf16 in memory: a file of its own, so that a library that keeps
// activations in fp32 leaves it out (src/api/runtime).
#include "engine/kernels/attention/attention_few_queries.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/attention/attention_few_queries_bf16_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/attention/attention_few_queries-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

void attend_heads(const AttentionArgs& args, AttentionRows q, AttentionRows k, AttentionRows v, MutableAttentionRows o,
                  float* lse, int64_t sample, int64_t keys_of, int64_t head, int64_t head_end, float* scores) {
  AttendHeadsOf<Bfloat16>(args, q, k, v, o, lse, sample, keys_of, head, head_end, scores);
}

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {

HWY_EXPORT(attend_heads);

AttendHeads bf16_attend_heads() { return HWY_DYNAMIC_DISPATCH(attend_heads); }

}  // namespace linnet
#endif
