#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
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

// What one query sees: keys and values [first, first + keys) of those of its head.
struct Query {
  const float* q;
  float* o;
  float* lse;         // may be null
  const float* bias;  // of key 0; may be null
  int64_t first, keys;
  float* scores;
};

// Queries that are computed together, so that a key in registers serves all of them. Each has the bits that it has
// alone: its sums are added in the same order.
constexpr int kTogether = kFloatLanes >= 16 ? 4 : 2;

// scores[j] = q k_j for each query and the keys [0, keys), a multiple of four.
template <int kQueries>
HWY_NOINLINE void ScoreFours(const Query* queries, int64_t width, int64_t keys, const float* k, int64_t stride) {
  for (int64_t j = 0; j < keys; j += 4, k += 4 * stride) {
    Floats sums[kQueries][4];
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i) sums[i][0] = sums[i][1] = sums[i][2] = sums[i][3] = hn::Zero(FloatTag());
    ForRow(width, [&](const auto& at) LINNET_LAMBDA {
      const Floats k0 = at.load(k), k1 = at.load(k + stride), k2 = at.load(k + 2 * stride),
                   k3 = at.load(k + 3 * stride);
#pragma GCC unroll 4
      for (int i = 0; i < kQueries; ++i) {
        const Floats from = at.load(queries[i].q);
        sums[i][0] = hn::MulAdd(from, k0, sums[i][0]), sums[i][1] = hn::MulAdd(from, k1, sums[i][1]);
        sums[i][2] = hn::MulAdd(from, k2, sums[i][2]), sums[i][3] = hn::MulAdd(from, k3, sums[i][3]);
      }
    });
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i)
      SumLanesOfFour(sums[i][0], sums[i][1], sums[i][2], sums[i][3], queries[i].scores + j);
  }
}

// The scores of the keys from `done` on, a multiple of four; then scales all.
HWY_INLINE void ScoreRest(
    const Query& query, int64_t width, int64_t done, float scale, const float* k, int64_t stride) {
  float* scores = query.scores;
  const int64_t fours = query.keys / 4 * 4;
  if (done < fours) {
    Query rest = query;
    rest.scores += done;
    ScoreFours<1>(&rest, width, fours - done, k + done * stride, stride);
  }
  for (int64_t j = fours; j < query.keys; ++j)
    scores[j] = SumRow(width,
        [=, &query](const auto& at) LINNET_LAMBDA { return hn::Mul(at.load(query.q), at.load(k + j * stride)); });
  const Floats factor = SetAll(scale);
  ForRow(query.keys, [=](const auto& at) LINNET_LAMBDA { at.store(hn::Mul(at.load(scores), factor), scores); });
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

// o = sum_j p_j v_j for each query: four vectors of each o at a time stay in registers, for the keys of all queries,
// then for those that a query sees alone.
template <int kQueries>
HWY_NOINLINE void WeighValues(const Query* queries, int64_t width, const float* v, int64_t stride) {
  const int64_t common = std::ranges::min(std::span(queries, kQueries), {}, &Query::keys).keys;
  constexpr int64_t kPart = 4 * kFloatLanes;
  int64_t column = 0;
  for (; column + kPart <= width; column += kPart) {
    Floats sums[kQueries][4];
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i) sums[i][0] = sums[i][1] = sums[i][2] = sums[i][3] = hn::Zero(FloatTag());
    const auto add = [&](int64_t j, int begin, int end) LINNET_LAMBDA {
      const float* row = v + j * stride + column;
      const Floats v0 = LoadFloats(row), v1 = LoadFloats(row + kFloatLanes), v2 = LoadFloats(row + 2 * kFloatLanes),
                   v3 = LoadFloats(row + 3 * kFloatLanes);
#pragma GCC unroll 4
      for (int i = begin; i < end; ++i) {
        const Floats p = SetAll(queries[i].scores[j]);
        sums[i][0] = hn::MulAdd(p, v0, sums[i][0]), sums[i][1] = hn::MulAdd(p, v1, sums[i][1]);
        sums[i][2] = hn::MulAdd(p, v2, sums[i][2]), sums[i][3] = hn::MulAdd(p, v3, sums[i][3]);
      }
    };
    for (int64_t j = 0; j < common; ++j) add(j, 0, kQueries);
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i) {
      for (int64_t j = common; j < queries[i].keys; ++j) add(j, i, i + 1);
#pragma GCC unroll 4
      for (int part = 0; part < 4; ++part) WholeLanes{column + part * kFloatLanes}.store(sums[i][part], queries[i].o);
    }
  }
  for (int i = 0; i < kQueries; ++i)
    ForRow(width - column, [=](const auto& at) LINNET_LAMBDA {
      Floats total = hn::Zero(FloatTag());
      for (int64_t j = 0; j < queries[i].keys; ++j)
        total = hn::MulAdd(SetAll(queries[i].scores[j]), at.load(v + j * stride + column), total);
      at.store(total, queries[i].o + column);
    });
}

// Up to kTogether queries that begin with the same of their head's keys.
void attend_together(const AttentionArgs& args, const Query* queries, int count, const float* k, int64_t k_stride,
    const float* v, int64_t v_stride) {
  k += queries[0].first * k_stride, v += queries[0].first * v_stride;
  const bool whole = count == kTogether;
  const int64_t together = whole ? std::ranges::min(std::span(queries, kTogether), {}, &Query::keys).keys / 4 * 4 : 0;
  if (whole) ScoreFours<kTogether>(queries, args.head_size, together, k, k_stride);
  for (int i = 0; i < count; ++i) {
    const Query& query = queries[i];
    float log_sum = -std::numeric_limits<float>::infinity(), *scores = query.scores;
    if (query.keys > 0) {
      ScoreRest(query, args.head_size, together, args.scale, k, k_stride);
      if (args.soft_cap > 0) CapScores(query.keys, args.soft_cap, scores);
      if (const float* bias = query.bias)
        ForRow(query.keys,
            [=](const auto& at) LINNET_LAMBDA { at.store(hn::Add(at.load(scores), at.load(bias)), scores); });
      log_sum = Normalize(query.keys, scores);
    }
    if (query.lse) *query.lse = log_sum;
    if (!whole) WeighValues<1>(&query, args.head_size, v, v_stride);
  }
  if (whole) WeighValues<kTogether>(queries, args.head_size, v, v_stride);
}

// The heads [head, head_end), which share keys and values, of the samples [sample, end). `scores` has room
// for score_floats().
void attend_heads(const AttentionArgs& args, AttentionRows q, AttentionRows k, AttentionRows v, MutableAttentionRows o,
    float* lse, int64_t sample, int64_t end, int64_t head, int64_t head_end, float* scores) {
  const int64_t width = args.head_size, offset = head / (args.query_heads / args.kv_heads) * width;
  Query queries[kTogether];
  int count = 0;
  int64_t keys_of = 0;
  const auto attend = [&] {
    if (count > 0)
      attend_together(args, queries, count, k.data.f32() + keys_of * k.batch_stride + offset, k.row_stride,
          v.data.f32() + keys_of * v.batch_stride + offset, v.row_stride);
    count = 0;
  };
  for (; sample < end; ++sample) {
    const int64_t own = args.key_rows ? std::max(args.key_rows[sample], 0) : sample;
    const int64_t valid = attention::valid_keys(args, sample);
    for (int64_t row = 0; row < args.query_length; ++row) {
      const int64_t past = row + 1 + args.key_length - args.query_length;  // keys up to the query's own position
      const int64_t keys = args.causal ? std::clamp<int64_t>(past, 0, valid) : valid;
      const int64_t first = std::clamp<int64_t>(first_key_seen(args, sample, row), 0, keys);
      if (count > 0 && (own != keys_of || first != queries[0].first)) attend();
      keys_of = own;
      for (int64_t h = head; h < head_end; ++h) {
        const float* bias = args.biased ? args.distance_bias + sample * args.bias_stride +
                                              h * (args.query_length + args.key_length - 1) + args.query_length - 1 -
                                              row + first
                                        : nullptr;
        queries[count] = {.q = q.data.f32() + (sample * q.batch_stride + row * q.row_stride + h * width),
            .o = o.data.f32() + (sample * o.batch_stride + row * o.row_stride + h * width),
            .lse = lse ? lse + (sample * args.query_heads + h) * args.query_length + row : nullptr,
            .bias = bias,
            .first = first,
            .keys = keys - first,
            .scores = scores + count * round_up(args.key_length, 16)};
        if (++count == kTogether) attend();
      }
    }
  }
  attend();
}
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
HWY_EXPORT(attend_heads);

constexpr int64_t kManySamples = 16;

// Floats of one thread's scores: rows for four queries, in whole cache lines.
int64_t score_floats(const AttentionArgs& args) { return 4 * round_up(args.key_length, 16); }
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
  const auto scores = [&](int worker) { return reinterpret_cast<float*>(workspace) + worker * score_floats(args); };
  // Samples with rows of keys are usually tokens of one text. Heads that share keys stay together if that leaves a task
  // for each thread.
  const int64_t samples = args.key_rows && args.batch >= kManySamples ? kManySamples : 1;
  const int64_t blocks = ceil_div(args.batch, samples);
  const int64_t heads = blocks * args.kv_heads >= pool.size() ? args.query_heads / args.kv_heads : 1;
  const int64_t parts = args.query_heads / heads;
  pool.run(blocks * parts, [&](int64_t task, int worker) {
    const int64_t head = task % parts * heads, first = task / parts * samples;
    HWY_DYNAMIC_DISPATCH(attend_heads)
    (args, q, k, v, o, lse, first, std::min(first + samples, args.batch), head, head + heads, scores(worker));
  });
}
}  // namespace linnet
#endif
