#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/thread_pool.h"
#include "kernels/attention.h"
#include "kernels/attention_blocking.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_forward_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/attention-inl.h"
#include "kernels/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

using namespace attention;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// One chunk of queries of one query head. For every block of keys, and for every block of queries in it, the running
// softmax: with the new maximum m' of a query,  sum = sum * 2^(m - m') + sum_j 2^(s_j - m'),  o likewise with v_j.
class ForwardHead {
 public:
  ForwardHead(const AttentionArgs& args, const attention_blocking::ForwardLayout& at, int64_t sample, float* scratch)
      : args_(args),
        dropout_(args, sample, scratch + at.random),
        width_(attention_blocking::round_up(args.head_size, kWidth)),
        q_(scratch + at.q),
        scores_(scratch + at.scores),
        k_(scratch + at.k),
        v_(scratch + at.v),
        o_(scratch + at.o),
        maximum_(scratch + at.maximum),
        sum_(scratch + at.sum),
        fade_(scratch + at.fade) {}

  void start(int64_t first, int64_t queries) {
    first_ = first, queries_ = queries;
    for (int64_t i = 0; i < queries; i += kLanes) {  // there is room for whole vectors
      hn::Store(hn::Set(d, kMinusInfinity), d, maximum_ + i);
      hn::Store(hn::Zero(d), d, sum_ + i);
    }
  }

  void pack_keys(const float* k, int64_t k_stride, const float* v, int64_t v_stride, int64_t first, int64_t keys) {
    first_key_ = first, keys_ = keys;
    PackScaledRows(k + first * k_stride, k_stride, keys, args_.head_size, args_.scale * kLog2E, k_);
    PackPanels(v + first * v_stride, v_stride, keys, args_.head_size, v_);
    exact_ = args_.causal && !AllFinite(v_, keys, args_.head_size);
  }

  // All queries of the chunk against the packed keys. `q` is the head's row 0.
  void attend(const float* q, int64_t q_stride, int64_t head) {
    const attention_blocking::Pieces blocks(queries_, kQueryBlock);
    for (int64_t block = 0; block < blocks.pieces; ++block) {
      const int64_t at = blocks.begin(block), queries = blocks.begin(block + 1) - at;
      const Window window{first_ + at, queries, first_key_, keys_, args_.causal, args_.key_length - args_.query_length};
      if (window.limit(queries - 1) == 0) {
        if (first_key_ == 0) std::fill_n(o_ + at * width_, queries * width_, 0.0f);
        continue;
      }
      PackTransposed(q + (first_ + at) * q_stride, q_stride, queries, args_.head_size, q_);
      Scores(window, args_.head_size, k_, q_, scores_);
      bool faded = false;
      for (int64_t i = 0; i < queries; i += kLanes) faded |= softmax(window, i, at + i, head);
      if (faded)
        for (int64_t i = 0; i < queries; ++i) fade_row(o_ + (at + i) * width_, fade_[i]);
      WeighKeys(window, exact_, args_.head_size, scores_, v_, o_ + at * width_, width_, first_key_ > 0);
    }
  }

  // o = o / sum and the log-sum-exp, for a sample with that many valid keys.
  void finish(int64_t valid, float* o, int64_t o_stride, float* lse) {
    for (int64_t i = 0; i < queries_; i += kLanes) {
      const V sum = hn::Load(d, sum_ + i);
      hn::Store(hn::MulAdd(hn::Set(d, kLn2), hn::Load(d, maximum_ + i), Log(sum)), d, maximum_ + i);
      hn::Store(hn::Div(hn::Set(d, dropout_.scale), sum), d, sum_ + i);
    }
    for (int64_t i = 0; i < queries_; ++i) {
      const int64_t seen = args_.causal ? first_ + i + args_.key_length - args_.query_length + 1 : valid;
      const bool blind = std::min(seen, valid) <= 0;
      lse[first_ + i] = blind ? kMinusInfinity : maximum_[i];
      float* out = o + (first_ + i) * o_stride;
      if (blind) {
        std::fill_n(out, args_.head_size, 0.0f);
      } else {
        WriteScaled(o_ + i * width_, sum_[i], args_.head_size, false, out);
      }
    }
  }

 private:
  // Scores of the kLanes queries from i of the window become 2^(s - maximum), zero where dropped or not seen; the state
  // of the queries (`at` in the chunk) is brought up to date. Returns whether what they have so far must fade.
  HWY_INLINE bool softmax(const Window& window, int64_t i, int64_t at, int64_t head) {
    const V before = hn::Load(d, maximum_ + at), maximum = hn::Max(before, column_maximum(window, i));
    // Scores of minus infinity alone leave the maximum there: subtracting 0 instead avoids inf - inf.
    const V shift = hn::IfThenZeroElse(hn::Eq(maximum, hn::Set(d, kMinusInfinity)), maximum);
    V sum = hn::Zero(d);
    ForKeys(window, i, dropout_, head, [&](int64_t j, const auto& seen, int64_t t) HWY_ATTR {
      float* s = scores_ + j * kScoreStride + i;
      const V e = seen(Exp2(hn::Sub(hn::Load(d, s), shift)));
      sum = hn::Add(sum, e);
      hn::Store(dropout_.active ? dropout_.keep(e, t) : e, d, s);
    });
    ClearUnseen(window, i, scores_);
    const V fade = Exp2(hn::Sub(before, shift));
    hn::Store(hn::MulAdd(hn::Load(d, sum_ + at), fade, sum), d, sum_ + at);
    hn::Store(maximum, d, maximum_ + at);
    hn::Store(fade, d, fade_ + i);
    return first_key_ > 0;
  }

  // The largest score of each of the kLanes queries from i, in four strands to hide the latency. A NaN may get lost
  // here; its exponential brings it back.
  HWY_INLINE V column_maximum(const Window& window, int64_t i) const {
    const int64_t seen_by_all = window.limit(i), end = window.limit(std::min(i + kLanes, window.queries) - 1);
    const float* s = scores_ + i;
    V m0 = hn::Set(d, kMinusInfinity), m1 = m0, m2 = m0, m3 = m0;
    int64_t j = 0;
    for (; j + 4 <= seen_by_all; j += 4) {
      m0 = hn::Max(m0, hn::Load(d, s + j * kScoreStride));
      m1 = hn::Max(m1, hn::Load(d, s + (j + 1) * kScoreStride));
      m2 = hn::Max(m2, hn::Load(d, s + (j + 2) * kScoreStride));
      m3 = hn::Max(m3, hn::Load(d, s + (j + 3) * kScoreStride));
    }
    const V lane = hn::Iota(d, static_cast<float>(i));
    for (; j < end; ++j) {
      const auto seen = hn::Ge(lane, hn::Set(d, static_cast<float>(window.first_seer(j))));
      m0 = hn::Max(m0, hn::IfThenElse(seen, hn::Load(d, s + j * kScoreStride), m0));
    }
    return hn::Max(hn::Max(m0, m1), hn::Max(m2, m3));
  }

  HWY_INLINE void fade_row(float* o, float factor) const {
    for (int64_t k = 0; k < width_; k += kLanes) hn::Store(hn::Mul(hn::Load(d, o + k), hn::Set(d, factor)), d, o + k);
  }

  const AttentionArgs& args_;
  const Dropout dropout_;
  const int64_t width_;  // of rows of o_
  float *q_, *scores_, *k_, *v_, *o_, *maximum_, *sum_, *fade_;
  int64_t first_ = 0, queries_ = 0, first_key_ = 0, keys_ = 0;
  bool exact_ = false;
};

void forward_task(const AttentionArgs& args, const attention_blocking::ForwardLayout& layout,
                  const attention_blocking::ForwardOperands& x, int64_t task, float* scratch) {
  const auto& [q, k, v, o, lse] = x;
  const attention_blocking::Pieces& chunks = layout.chunks;
  const int64_t chunk = task % chunks.pieces, first = chunks.begin(chunk), end = chunks.begin(chunk + 1);
  const int64_t kv_head = task / chunks.pieces % args.kv_heads, sample = task / chunks.pieces / args.kv_heads;
  const int64_t group = args.query_heads / args.kv_heads, valid = valid_keys(args, sample);
  const int64_t keys = args.causal ? std::clamp<int64_t>(end + args.key_length - args.query_length, 0, valid) : valid;
  if (first == end) return;
  ForwardHead head(args, layout, sample, scratch);
  for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    head.start(first, end - first);
    for (int64_t key = 0; key < keys; key += kKeyBlock) {
      if (h == kv_head * group || keys > kKeyBlock)  // a single block of keys is packed once for all heads
        head.pack_keys(k.data + sample * k.batch_stride + kv_head * args.head_size, k.row_stride,
                       v.data + sample * v.batch_stride + kv_head * args.head_size, v.row_stride, key,
                       std::min(kKeyBlock, keys - key));
      head.attend(q.data + sample * q.batch_stride + h * args.head_size, q.row_stride, h);
    }
    head.finish(valid, o.data + sample * o.batch_stride + h * args.head_size, o.row_stride,
                lse + (sample * args.query_heads + h) * args.query_length);
  }
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
  const auto function = HWY_DYNAMIC_DISPATCH(forward_task);
  pool.run(args.batch * args.kv_heads * layout.chunks.pieces, [&](int64_t task, int worker) {
    function(args, layout, operands, task, reinterpret_cast<float*>(workspace) + worker * layout.size());
  });
}

}  // namespace linnet
#endif
