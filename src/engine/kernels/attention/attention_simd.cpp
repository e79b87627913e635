#include <cmath>
#include <limits>
#include "base/error.h"
#include "base/thread_pool.h"
#include "engine/kernels/attention/attention.h"
#include "engine/kernels/attention/attention_blocking.h"

#define HWY_TARGET_INCLUDE "engine/kernels/attention/attention_simd.cpp"
#include <hwy/foreach_target.h>
#include "engine/kernels/attention/attention_passes-inl.h"
#include "engine/kernels/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {
attention_blocking::ForwardTask forward_task() { return attention::ForwardTask<attention::F32Weights>; }
attention_blocking::BackwardTask backward_task() { return attention::BackwardTask<attention::F32Weights>; }

// to[0..3] = the sums over the 128-bit blocks of their elements 0..3.
template <class D> HWY_INLINE void StoreBlockSum(D d, hn::Vec<D> x, float* to) {
  if constexpr (hn::MaxLanes(D()) > 4) {
    const hn::Half<D> half;
    StoreBlockSum(half, hn::Add(hn::LowerHalf(half, x), hn::UpperHalf(half, x)), to);
  } else {
    hn::StoreU(x, d, to);
  }
}

// to[i] = the sum of the lanes of a, b, c, e, by a transposition that adds as it goes.
HWY_INLINE void SumLanesOfFour(Floats a, Floats b, Floats c, Floats e, float* to) {
  const FloatTag d;
  const hn::RepartitionToWide<FloatTag> pairs;
  const Floats ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  const Floats ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  const auto low = hn::BitCast(pairs, ab), high = hn::BitCast(pairs, ce);
  StoreBlockSum(d,
      hn::Add(
          hn::BitCast(d, hn::InterleaveLower(pairs, low, high)), hn::BitCast(d, hn::InterleaveUpper(pairs, low, high))),
      to);
}

// scores[j] = scale * q k_j
template <class T> HWY_INLINE void ScoreKeys(
    int64_t width, int64_t keys, float scale, StoredFloats q, const T* k, int64_t stride, float* scores) {
  int64_t j = 0;
  for (; j + 4 <= keys; j += 4, k += 4 * stride) {
    Floats s0 = hn::Zero(FloatTag()), s1 = s0, s2 = s0, s3 = s0;
    ForRow(width, [&](const auto& at) LINNET_LAMBDA {
      const Floats from = at.load(q);
      s0 = hn::MulAdd(from, at.load(k), s0);
      s1 = hn::MulAdd(from, at.load(k + stride), s1);
      s2 = hn::MulAdd(from, at.load(k + 2 * stride), s2);
      s3 = hn::MulAdd(from, at.load(k + 3 * stride), s3);
    });
    SumLanesOfFour(s0, s1, s2, s3, scores + j);
  }
  for (; j < keys; ++j, k += stride)
    scores[j] = SumRow(width, [=](const auto& at) LINNET_LAMBDA { return hn::Mul(at.load(q), at.load(k)); });
  const Floats factor = SetAll(scale);
  ForRow(keys, [=](const auto& at) LINNET_LAMBDA { at.store(hn::Mul(at.load(scores), factor), scores); });
}

HWY_INLINE void CapScores(int64_t keys, float cap, float* scores) {
  const Floats to = SetAll(cap), from = SetAll(1 / cap);
  ForRow(
      keys, [=](const auto& at) LINNET_LAMBDA { at.store(hn::Mul(to, Tanh(hn::Mul(at.load(scores), from))), scores); });
}

// scores become exp(score - maximum) / sum; returns the log-sum-exp.
HWY_INLINE float Normalize(int64_t keys, float* scores) {
  const float largest = MaxRow(keys, scores);
  const Floats shift = SetAll(largest);
  const float sum = SumRow(keys, [=](const auto& at) LINNET_LAMBDA {
    const Floats e = Exp(hn::Sub(at.load(scores, -std::numeric_limits<float>::infinity()), shift));
    at.store(e, scores);
    return e;
  });
  const Floats factor = SetAll(1 / sum);
  ForRow(keys, [=](const auto& at) LINNET_LAMBDA { at.store(hn::Mul(at.load(scores), factor), scores); });
  return largest + std::log(sum);
}

// o = sum_j p_j v_j: four vectors of o at a time stay in registers.
template <class T> HWY_INLINE void WeighValues(
    int64_t width, int64_t keys, const float* p, const T* v, int64_t stride, MutableStoredFloats o) {
  int64_t i = 0;
  for (; i + 4 * kFloatLanes <= width; i += 4 * kFloatLanes) {
    Floats o0 = hn::Zero(FloatTag()), o1 = o0, o2 = o0, o3 = o0;
    for (int64_t j = 0; j < keys; ++j) {
      const Floats pj = SetAll(p[j]);
      const T* row = v + j * stride + i;
      o0 = hn::MulAdd(pj, LoadFloats(row), o0);
      o1 = hn::MulAdd(pj, LoadFloats(row + kFloatLanes), o1);
      o2 = hn::MulAdd(pj, LoadFloats(row + 2 * kFloatLanes), o2);
      o3 = hn::MulAdd(pj, LoadFloats(row + 3 * kFloatLanes), o3);
    }
    WholeLanes{i}.store(o0, o);
    WholeLanes{i + kFloatLanes}.store(o1, o);
    WholeLanes{i + 2 * kFloatLanes}.store(o2, o);
    WholeLanes{i + 3 * kFloatLanes}.store(o3, o);
  }
  ForRow(width - i, [=](const auto& at) LINNET_LAMBDA {
    Floats total = hn::Zero(FloatTag());
    for (int64_t j = 0; j < keys; ++j) total = hn::MulAdd(SetAll(p[j]), at.load(v + j * stride + i), total);
    at.store(total, o + i);
  });
}

// The heads [head, head_end) of one sample, with keys and values of type T of sample `keys_of`.
// `scores` has room for a key's float each.
template <class T> void attend_heads(const AttentionArgs& args, AttentionRows q, AttentionRows k, AttentionRows v,
    MutableAttentionRows o, float* lse, int64_t sample, int64_t keys_of, int64_t head, int64_t head_end,
    float* scores) {
  const int64_t width = args.head_size, group = args.query_heads / args.kv_heads;
  const int64_t valid = attention::valid_keys(args, sample);
  for (; head < head_end; ++head) {
    const T* head_k = k.data.as<T>() + keys_of * k.batch_stride + head / group * width;
    const T* head_v = v.data.as<T>() + keys_of * v.batch_stride + head / group * width;
    for (int64_t row = 0; row < args.query_length; ++row) {
      const int64_t past = row + 1 + args.key_length - args.query_length;  // keys up to the query's own position
      const int64_t keys = args.causal ? std::clamp<int64_t>(past, 0, valid) : valid;
      const int64_t first = std::clamp<int64_t>(first_key_seen(args, sample, row), 0, keys);
      float log_sum = -std::numeric_limits<float>::infinity();
      if (keys > first) {
        ScoreKeys(width, keys - first, args.scale,
            q.data + (sample * q.batch_stride + row * q.row_stride + head * width), head_k + first * k.row_stride,
            k.row_stride, scores);
        if (args.soft_cap > 0) CapScores(keys - first, args.soft_cap, scores);
        if (args.biased) {
          const float* bias = args.distance_bias + sample * args.bias_stride +
                              head * (args.query_length + args.key_length - 1) + args.query_length - 1 - row + first;
          ForRow(keys - first,
              [=](const auto& at) LINNET_LAMBDA { at.store(hn::Add(at.load(scores), at.load(bias)), scores); });
        }
        log_sum = Normalize(keys - first, scores);
      }
      if (lse) lse[(sample * args.query_heads + head) * args.query_length + row] = log_sum;
      WeighValues(width, keys - first, scores, head_v + first * v.row_stride, v.row_stride,
          o.data + (sample * o.batch_stride + row * o.row_stride + head * width));
    }
  }
}

auto attend_heads_of(bool bf16) { return bf16 ? attend_heads<Bfloat16> : attend_heads<float>; }
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
  return bytes_for<float>(attention_blocking::ForwardLayout(args).size() * threads);
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
  return bytes_for<float>(attention_blocking::BackwardLayout(args).size() * threads + shared);
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

namespace {
HWY_EXPORT(attend_heads_of);

constexpr int64_t kManySamples = 16;

// Floats of one thread's scores, in whole cache lines.
int64_t score_floats(const AttentionArgs& args) { return round_up(args.key_length, 16); }
}  // namespace

bool has_few_queries(const AttentionArgs& args) {
  if (args.dropout > 0) return false;
  return args.independent_queries || (args.query_length <= kFewQueries && !args.causal && args.window == 0);
}

size_t attention_few_queries_workspace(const AttentionArgs& args, int threads) {
  return bytes_for<float>(score_floats(args) * threads);
}

void attention_few_queries(const AttentionArgs& args, AttentionRows q, AttentionRows k, AttentionRows v,
    MutableAttentionRows o, float* lse, std::byte* workspace, ThreadPool& pool) {
  if (k.data.is_bf16 != v.data.is_bf16) fail_internal("attention: keys and values of two types");
  const auto attend = HWY_DYNAMIC_DISPATCH(attend_heads_of)(k.data.is_bf16);
  const auto scores = [&](int worker) { return reinterpret_cast<float*>(workspace) + worker * score_floats(args); };
  if (args.key_rows) {
    // Neighbors are usually tokens of one text, so a head's keys stay in cache for all of them.
    const int64_t samples = args.batch >= kManySamples ? kManySamples : 1;
    pool.run(ceil_div(args.batch, samples) * args.query_heads, [&](int64_t task, int worker) {
      const int64_t head = task % args.query_heads, first = task / args.query_heads * samples;
      for (int64_t sample = first; sample < std::min(first + samples, args.batch); ++sample)
        attend(args, q, k, v, o, lse, sample, std::max(args.key_rows[sample], 0), head, head + 1, scores(worker));
    });
    return;
  }
  // Few samples are divided by heads, whose keys lie apart.
  const int64_t parts = args.batch >= kManySamples ? 1 : args.query_heads;
  const int64_t heads = args.query_heads / parts;
  pool.run(args.batch * parts, [&](int64_t task, int worker) {
    const int64_t sample = task / parts, head = task % parts * heads;
    attend(args, q, k, v, o, lse, sample, sample, head, head + heads, scores(worker));
  });
}
}  // namespace linnet
#endif
