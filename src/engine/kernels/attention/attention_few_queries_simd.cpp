#include <algorithm>
#include "base/error.h"
#include "base/thread_pool.h"
#include "engine/kernels/attention/attention_few_queries.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/attention/attention_few_queries_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "engine/kernels/attention/attention_few_queries-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

// The heads [head, head_end) of one sample, with the keys and values of sample `keys_of`. `scores` has room for a key's
// float each.
using AttendHeads = void (*)(const AttentionArgs& args, AttentionRows q, AttentionRows k, AttentionRows v,
                             MutableAttentionRows o, float* lse, int64_t sample, int64_t keys_of, int64_t head,
                             int64_t head_end, float* scores);

template <class T>
void attend_heads(const AttentionArgs& args, AttentionRows q, AttentionRows k, AttentionRows v, MutableAttentionRows o,
                  float* lse, int64_t sample, int64_t keys_of, int64_t head, int64_t head_end, float* scores) {
  AttendHeadsOf<T>(args, q, k, v, o, lse, sample, keys_of, head, head_end, scores);
}
AttendHeads attend_heads_of(bool bf16) { return bf16 ? attend_heads<Bfloat16> : attend_heads<float>; }

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
namespace {

HWY_EXPORT(attend_heads_of);

constexpr int64_t kManySamples = 16;

// Floats of one thread's scores, in whole cache lines.
int64_t score_floats(const AttentionArgs& args) { return (args.key_length + 15) / 16 * 16; }

}  // namespace

bool has_few_queries(const AttentionArgs& args) {
  if (args.dropout > 0) return false;
  return args.independent_queries || (args.query_length <= kFewQueries && !args.causal && args.window == 0);
}

size_t attention_few_queries_workspace(const AttentionArgs& args, int threads) {
  return static_cast<size_t>(score_floats(args) * threads) * sizeof(float);
}

void attention_few_queries(const AttentionArgs& args, AttentionRows q, AttentionRows k, AttentionRows v,
                           MutableAttentionRows o, float* lse, std::byte* workspace, ThreadPool& pool,
                           const int32_t* key_rows) {
  if (k.data.is_bf16 != v.data.is_bf16) fail_internal("attention: keys and values of two types");
  const auto attend = HWY_DYNAMIC_DISPATCH(attend_heads_of)(k.data.is_bf16);
  const auto scores = [&](int worker) { return reinterpret_cast<float*>(workspace) + worker * score_floats(args); };
  if (key_rows) {
    // Neighbors are tokens of one text, as a rule: the keys of a head stay in the cache for all of them.
    const int64_t samples = args.batch >= kManySamples ? kManySamples : 1;
    pool.run((args.batch + samples - 1) / samples * args.query_heads, [&](int64_t task, int worker) {
      const int64_t head = task % args.query_heads, first = task / args.query_heads * samples;
      for (int64_t sample = first; sample < std::min(first + samples, args.batch); ++sample)
        attend(args, q, k, v, o, lse, sample, std::max(key_rows[sample], 0), head, head + 1, scores(worker));
    });
    return;
  }
  // With few samples their heads are dealt out too: each head by itself, whose keys lie apart.
  const int64_t parts = args.batch >= kManySamples ? 1 : args.query_heads;
  const int64_t heads = args.query_heads / parts;
  pool.run(args.batch * parts, [&](int64_t task, int worker) {
    const int64_t sample = task / parts, head = task % parts * heads;
    attend(args, q, k, v, o, lse, sample, sample, head, head + heads, scores(worker));
  });
}

}  // namespace linnet
#endif
