#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "base/error.h"
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

// One chunk of queries of one query head. For every block of keys, and for every block of rows in it, the running
// softmax: with the new maximum m' of a row,  sum = sum * 2^(m - m') + sum_j 2^(s_j - m'),  o likewise with v_j.
class ForwardHead {
 public:
  ForwardHead(const AttentionArgs& args, float* scratch)
      : args_(args), dropout_(args), width_(attention_blocking::round_up(args.head_size, kWidth)) {
    const attention_blocking::ForwardLayout at(args);
    q_ = scratch + at.q, scores_ = scratch + at.scores, k_ = scratch + at.k, v_ = scratch + at.v, o_ = scratch + at.o;
    maximum_ = scratch + at.maximum, sum_ = scratch + at.sum;
    random_ = reinterpret_cast<uint16_t*>(scratch + at.mask);
  }

  void start(int64_t first_row, int64_t rows) {
    first_row_ = first_row, rows_ = rows;
    std::fill_n(o_, rows * width_, 0.0f);
    std::fill_n(maximum_, rows, kMinusInfinity);
    std::fill_n(sum_, rows, 0.0f);
  }

  void pack_keys(const float* k, int64_t k_stride, const float* v, int64_t v_stride, int64_t first, int64_t keys) {
    first_key_ = first, keys_ = keys;
    PackTransposed(k + first * k_stride, k_stride, keys, args_.head_size, k_);
    PackPanels(v + first * v_stride, v_stride, keys, args_.head_size, v_);
    exact_ = args_.causal && !AllFinite(v_, keys, args_.head_size);
  }

  // All rows of the chunk against the packed keys. `q` is the head's row 0.
  void attend(const float* q, int64_t q_stride, int64_t head, int64_t sample) {
    const int64_t blocks = attention_blocking::ceil_div(rows_, kRowBlock);
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t row = block * rows_ / blocks, end = (block + 1) * rows_ / blocks;
      const Window window{
          first_row_ + row, end - row, first_key_, keys_, args_.causal, args_.key_length - args_.query_length};
      if (window.limit(window.rows - 1) == 0) continue;
      PackScaledRows(q + (first_row_ + row) * q_stride, q_stride, window.rows, args_.head_size, args_.scale * kLog2E,
                     q_);
      Scores(window, args_.head_size, q_, k_, scores_);
      RandomRows random(dropout_, window, head, sample, random_);
      const Tiles tiles(window.rows, exact_);
      for (int64_t t = 0; t < tiles.tiles; ++t)
        for (int64_t i = tiles.begin(t); i <= tiles.last(t); ++i) {
          float* s = scores_ + i * kStride;
          const int64_t limit = window.limit(i);
          if (limit > 0) softmax_row(s, limit, row + i, dropout_.active ? random.row(i, limit) : nullptr);
          std::fill(s + limit, s + window.limit(tiles.last(t)), 0.0f);
        }
      WeighKeys(window, exact_, args_.head_size, scores_, v_, o_ + row * width_, width_, true);
    }
  }

  // o = o / sum and the log-sum-exp. maximum_ and sum_ have room for whole vectors.
  void finish(float* o, int64_t o_stride, float* lse) {
    for (int64_t i = 0; i < rows_; i += kLanes) {
      const V sum = hn::Load(d, sum_ + i);
      hn::Store(hn::MulAdd(hn::Set(d, kLn2), hn::Load(d, maximum_ + i), Log(sum)), d, maximum_ + i);
      hn::Store(hn::Div(hn::Set(d, dropout_.scale), sum), d, sum_ + i);
    }
    for (int64_t i = 0; i < rows_; ++i) {
      const bool blind = !sees_any_key(i);
      lse[first_row_ + i] = blind ? kMinusInfinity : maximum_[i];
      WriteScaled(o_ + i * width_, blind ? 0.0f : sum_[i], args_.head_size, false, o + (first_row_ + i) * o_stride);
    }
  }

  int64_t valid = 0;  // keys of this sample

 private:
  bool sees_any_key(int64_t i) const {
    const int64_t seen = args_.causal ? first_row_ + i + args_.key_length - args_.query_length + 1 : valid;
    return std::min(seen, valid) > 0;
  }

  // s[0, limit) becomes 2^(s - maximum), dropped where dropout says; the row's state is brought up to date.
  HWY_INLINE void softmax_row(float* s, int64_t limit, int64_t row, const uint16_t* random) {
    V m = hn::Set(d, maximum_[row]);
    int64_t j = 0;
    for (; j + kLanes <= limit; j += kLanes) m = hn::Max(m, hn::Load(d, s + j));
    const auto rest = hn::FirstN(d, static_cast<size_t>(limit - j));
    if (j < limit) m = hn::Max(m, hn::IfThenElse(rest, hn::Load(d, s + j), m));
    const float maximum = hn::GetLane(hn::MaxOfLanes(d, m));
    // Scores of minus infinity alone leave the maximum there: subtracting 0 instead avoids inf - inf.
    const float shift = maximum == kMinusInfinity ? 0.0f : maximum;
    const V base = hn::Set(d, shift);
    V total = hn::Zero(d);
    const auto store = [&](V e, int64_t at) HWY_ATTR {
      total = hn::Add(total, e);
      hn::Store(random ? dropout_.keep(e, random + at) : e, d, s + at);
    };
    for (j = 0; j + kLanes <= limit; j += kLanes) store(Exp2(hn::Sub(hn::Load(d, s + j), base)), j);
    if (j < limit) store(hn::IfThenElseZero(rest, Exp2(hn::Sub(hn::Load(d, s + j), base))), j);

    const float sum = hn::GetLane(hn::SumOfLanes(d, total));
    if (shift == maximum_[row]) {
      sum_[row] += sum;
      return;
    }
    const float before = maximum_[row];
    maximum_[row] = maximum;
    if (first_key_ == 0) {
      sum_[row] = sum;
      return;
    }
    const V fade = Exp2(hn::Set(d, before - shift));
    sum_[row] = sum_[row] * hn::GetLane(fade) + sum;
    float* o = o_ + row * width_;
    for (int64_t k = 0; k < width_; k += kLanes) hn::Store(hn::Mul(hn::Load(d, o + k), fade), d, o + k);
  }

  const AttentionArgs& args_;
  const Dropout dropout_;
  const int64_t width_;  // of rows of o_
  float *q_, *scores_, *k_, *v_, *o_, *maximum_, *sum_;
  uint16_t* random_;
  int64_t first_row_ = 0, rows_ = 0, first_key_ = 0, keys_ = 0;
  bool exact_ = false;
};

void forward_task(const AttentionArgs& args, AttentionRows q, AttentionRows k, AttentionRows v, MutableAttentionRows o,
                  float* lse, int64_t task, float* scratch) {
  const int64_t chunks = attention_blocking::chunks(args), chunk = task % chunks;
  const int64_t kv_head = task / chunks % args.kv_heads, sample = task / chunks / args.kv_heads;
  const int64_t group = args.query_heads / args.kv_heads;
  const int64_t first = attention_blocking::chunk_begin(args, chunk);
  const int64_t end = attention_blocking::chunk_begin(args, chunk + 1);
  int64_t keys = valid_keys(args, sample);
  ForwardHead head(args, scratch);
  head.valid = keys;
  if (args.causal) keys = std::clamp<int64_t>(end + args.key_length - args.query_length, 0, keys);
  for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    head.start(first, end - first);
    for (int64_t key = 0; key < keys; key += kKeyBlock) {
      if (h == kv_head * group || keys > kKeyBlock)  // a single block of keys is packed once for all heads
        head.pack_keys(k.data + sample * k.batch_stride + kv_head * args.head_size, k.row_stride,
                       v.data + sample * v.batch_stride + kv_head * args.head_size, v.row_stride, key,
                       std::min(kKeyBlock, keys - key));
      head.attend(q.data + sample * q.batch_stride + h * args.head_size, q.row_stride, h, sample);
    }
    head.finish(o.data + sample * o.batch_stride + h * args.head_size, o.row_stride,
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
  const int64_t floats = attention_blocking::ForwardLayout(args).size();
  const auto function = HWY_DYNAMIC_DISPATCH(forward_task);
  pool.run(args.batch * args.kv_heads * attention_blocking::chunks(args), [&](int64_t task, int worker) {
    function(args, q, k, v, o, lse, task, reinterpret_cast<float*>(workspace) + worker * floats);
  });
}

}  // namespace linnet
#endif
