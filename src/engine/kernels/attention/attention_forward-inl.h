// The forward pass of attention, for either precision. Included by *_simd.cpp after "hwy/foreach_target.h".
#if defined(LINNET_KERNELS_ATTENTION_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_ATTENTION_FORWARD_INL_H_
#undef LINNET_KERNELS_ATTENTION_FORWARD_INL_H_
#else
#define LINNET_KERNELS_ATTENTION_FORWARD_INL_H_
#endif

#include <limits>
#include <type_traits>
#include "engine/kernels/attention/attention-inl.h"
#include "engine/kernels/attention/attention_dropout-inl.h"
#include "engine/kernels/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE::attention {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Scores are taken relative to a shift of each query, which starts at 0 and follows the largest score only when that
// leaves these bounds: fp32 has room for all between, at the same relative error. So scores become exponentials where
// they are computed, and what has been summed is scaled seldom instead of at every new maximum.
constexpr float kHighest = 30, kLowest = -60;

// Of a tile of scores: stores 2^(score - shift), zero where dropped or not seen; adds to the sums and raises the maxima
// of the panel's queries. A NaN may get lost in the maximum; its exponential shows it.
template <class P, Masking kMasking, int kVectors>
HWY_NOINLINE void Exponentials(const Location& location, const float* scores, float* maximum, float* sum,
                               float* weights) {
  V top[kVectors], total[kVectors];
  SeenIn<kMasking, kVectors> seen(location);
#pragma GCC unroll 2
  for (int h = 0; h < kVectors; ++h) {
    top[h] = hn::Load(d, maximum + h * kLanes);
    total[h] = hn::Load(d, sum + h * kLanes);
  }
  for (int64_t i = 0; i < location.rows; i += 2) {
    V e[2][kVectors];
    if constexpr (hides(kMasking)) seen.start_pair(i);
#pragma GCC unroll 2
    for (int h = 0; h < kVectors; ++h) {
#pragma GCC unroll 2
      for (int row = 0; row < 2; ++row) {
        V score = hn::Load(d, scores + (i + row) * kWidth + h * kLanes);
        if constexpr (hides(kMasking)) score = seen.select(row, h, score, hn::Set(d, kMinusInfinity));
        top[h] = hn::Max(top[h], score);
        e[row][h] = Exp2<P::kExpDegree>(score);
      }
      total[h] = hn::Add(total[h], hn::Add(e[0][h], e[1][h]));
      if (kMasking != Masking::kNone && location.kept) {
        e[0][h] = hn::IfThenElseZero(Kept(location, i, h), e[0][h]);
        e[1][h] = hn::IfThenElseZero(Kept(location, i + 1, h), e[1][h]);
      }
    }
    P::StoreAlongKeys(e, location.key + i, location.query, weights);
  }
#pragma GCC unroll 2
  for (int h = 0; h < kVectors; ++h) {
    hn::Store(top[h], d, maximum + h * kLanes);
    hn::Store(total[h], d, sum + h * kLanes);
  }
}

// One chunk of queries of one query head, block of keys by block of keys.
template <class P>
class ForwardHead {
 public:
  ForwardHead(const AttentionArgs& args, const attention_blocking::ForwardLayout& at, int64_t sample, float* scratch)
      : args_(args),
        sample_(sample),
        dropout_(args, sample, scratch + at.mask),
        starts_(scratch + at.starts),
        bias_(scratch + at.bias),
        width_(round_up(args.head_size, kWidth)),
        q_(scratch + at.q),
        weights_(scratch + at.weights),
        k_(scratch + at.k),
        slice_(at.slice),
        v_(scratch + at.v),
        o_(scratch + at.o),
        minus_shift_(scratch + at.shift),
        maximum_(scratch + at.maximum),
        sum_(scratch + at.sum),
        block_sum_(scratch + at.block_sum) {}

  void start(int64_t first, int64_t queries) {
    first_ = first, queries_ = queries;
    for (int64_t i = 0; i < queries; i += kLanes) {  // there is room for whole vectors
      hn::Store(hn::Zero(d), d, minus_shift_ + i);
      hn::Store(hn::Zero(d), d, sum_ + i);
    }
    if (hides_) std::fill_n(o_, queries * width_, 0.0f);  // the first keys may be skipped
  }

  void pack_keys(StoredFloats k, int64_t k_stride, StoredFloats v, int64_t v_stride, int64_t first, int64_t keys) {
    first_key_ = first, keys_ = keys;
    PackScaledRows<P>(k + first * k_stride, k_stride, keys, args_.head_size, args_.scale * kLog2E, slice_, k_);
    PackPanels<P>(v + first * v_stride, v_stride, keys, args_.head_size, v_);
    exact_ = (args_.causal || hides_) && !AllFinite(v + first * v_stride, v_stride, keys, args_.head_size);
  }

  // All queries of the chunk against the packed keys. `q` is the head's row 0.
  void attend(StoredFloats q, int64_t q_stride, int64_t head) {
    const Pieces blocks(queries_, kQueryBlock, attention_blocking::kUnit);
    for (int64_t block = 0; block < blocks.pieces; ++block) {
      const int64_t at = blocks.begin(block), queries = blocks.begin(block + 1) - at;
      if (block + 1 < blocks.pieces)
        FetchRows(q + (first_ + at + queries) * q_stride, q_stride, blocks.begin(block + 2) - at - queries,
                  args_.head_size);
      Window window{first_ + at, queries, first_key_, keys_, args_.causal, args_.key_length - args_.query_length};
      LimitWindow(args_, sample_, head, starts_, bias_, window);
      float* o = o_ + at * width_;
      if (window.unseen()) {
        if (first_key_ == 0) std::fill_n(o, queries * width_, 0.0f);
        continue;
      }
      PackTransposed<P>(q + (first_ + at) * q_stride, q_stride, queries, args_.head_size, q_);
      const uint8_t* kept = dropout_.draw(window, head);
      const int64_t panel = ceil_div(args_.head_size, P::kPair) * kWidth;
      for (int64_t i = 0; i < queries; i += kWidth) attend_panel(window, i, at, q_ + i / kWidth * panel, kept, o);
      const auto weigh = exact_ ? WeighKeysExactly<P> : WeighKeys<P>;
      weigh(window, args_.head_size, weights_, v_, o, width_, first_key_ > 0 || hides_);
    }
  }

  // o = o / sum and the log-sum-exp, for a sample with that many valid keys.
  void finish(int64_t valid, MutableStoredFloats o, int64_t o_stride, float* lse) {
    for (int64_t i = 0; i < queries_; i += kLanes) {
      const V sum = hn::Load(d, sum_ + i);
      hn::Store(hn::NegMulAdd(hn::Set(d, kLn2), hn::Load(d, minus_shift_ + i), Log(sum)), d, minus_shift_ + i);
      hn::Store(hn::Div(hn::Set(d, dropout_.scale), sum), d, sum_ + i);
    }
    for (int64_t i = 0; i < queries_; ++i) {
      if (i + kRowsAhead < queries_) FetchRow<3>(o + (first_ + i + kRowsAhead) * o_stride, args_.head_size);
      const int64_t seen = args_.causal ? first_ + i + args_.key_length - args_.query_length + 1 : valid;
      const bool blind = std::min(seen, valid) <= (hides_ ? first_key_seen(args_, sample_, first_ + i) : 0);
      lse[first_ + i] = blind ? kMinusInfinity : minus_shift_[i];
      const MutableStoredFloats out = o + (first_ + i) * o_stride;
      if (blind) {
        ClearRow(out, args_.head_size);
      } else {
        WriteScaled(o_ + i * width_, sum_[i], args_.head_size, false, out);
      }
    }
  }

 private:
  // The weights of a panel of queries from i of the window, which begins at `at` in the chunk.
  void attend_panel(const Window& window, int64_t i, int64_t at, const float* q, const uint8_t* kept, float* o) {
    TileEnds ends = exponentials(window, i, at + i, q, kept);
    if (follow_maximum(window, i, at + i, o)) ends = exponentials(window, i, at + i, q, kept);
    for (int64_t h = 0; h < kWidth; h += kLanes)
      hn::Store(hn::Add(hn::Load(d, sum_ + at + i + h), hn::Load(d, block_sum_ + h)), d, sum_ + at + i + h);
    ClearUnseen<P>(window, i, ends, weights_);
  }

  TileEnds exponentials(const Window& window, int64_t i, int64_t at, const float* q, const uint8_t* kept) {
    for (int64_t h = 0; h < kWidth; h += kLanes) {
      hn::Store(hn::Set(d, kMinusInfinity), d, maximum_ + h);
      hn::Store(hn::Zero(d), d, block_sum_ + h);
    }
    return ForTiles<P>(window, i, kept, [&](const Location& location, Masking masking) LINNET_LAMBDA {
      switch (masking) {
        case Masking::kNone: return tile<Masking::kNone>(location, at, q);
        case Masking::kDropout: return tile<Masking::kDropout>(location, at, q);
        case Masking::kAny: return tile<Masking::kAny>(location, at, q);
        case Masking::kLimited: return tile<Masking::kLimited>(location, at, q);
      }
    });
  }
  template <Masking kMasking>
  HWY_INLINE void tile(const Location& location, int64_t at, const float* q) {
    const int64_t i = location.in_panel();
    HWY_ALIGN float scores[kRows * kWidth];
    Scores<P, kMasking>(location, ceil_div(args_.head_size, P::kPair), k_, slice_ - kSliceDepth<P>, q + i,
                        minus_shift_ + at + i, scores, kWidth);
    const auto finish = location.columns > kLanes ? Exponentials<P, kMasking, 2> : Exponentials<P, kMasking, 1>;
    finish(location, scores, maximum_ + i, block_sum_ + i, weights_);
  }

  // Moves the shift of queries whose largest score is out of bounds, and scales what they have so far. A sum that is
  // still zero may as well follow scores far below. Returns whether there were any.
  bool follow_maximum(const Window& window, int64_t i, int64_t at, float* o) {
    bool moved = false;
    for (int64_t h = 0; h < std::min<int64_t>(kWidth, round_up(window.queries - i, kLanes)); h += kLanes) {
      const V top = hn::Load(d, maximum_ + h), sum = hn::Load(d, sum_ + at + h);
      const auto nothing = hn::Eq(sum, hn::Zero(d));
      const auto low =
          hn::And(nothing, hn::And(hn::Lt(top, hn::Set(d, kLowest)), hn::Gt(top, hn::Set(d, kMinusInfinity))));
      const auto out = hn::Or(low, hn::Gt(top, hn::Set(d, kHighest)));
      if (hn::AllFalse(d, out)) continue;
      moved = true;
      const V move = hn::IfThenElseZero(out, top);
      const V fade = hn::IfThenZeroElse(nothing, Exp2<P::kExpDegree>(hn::Neg(move)));
      hn::Store(hn::Sub(hn::Load(d, minus_shift_ + at + h), move), d, minus_shift_ + at + h);
      hn::Store(hn::Mul(sum, fade), d, sum_ + at + h);
      if (first_key_ == 0) continue;  // nothing in o yet
      HWY_ALIGN float factors[kLanes];
      hn::Store(fade, d, factors);
      for (int64_t lane = 0; lane < std::min<int64_t>(kLanes, window.queries - i - h); ++lane) {
        float* row = o + (i + h + lane) * width_;
        WriteScaled(row, factors[lane], width_, false, row);
      }
    }
    return moved;
  }

  const AttentionArgs& args_;
  const int64_t sample_;
  const bool hides_ = attention_blocking::hides_keys(args_);
  const Dropout dropout_;
  float *starts_, *bias_;
  const int64_t width_;  // of rows of o_
  float *q_, *weights_, *k_;
  const int64_t slice_;  // of k_
  float *v_, *o_, *minus_shift_, *maximum_, *sum_, *block_sum_;
  int64_t first_ = 0, queries_ = 0, first_key_ = 0, keys_ = 0;
  bool exact_ = false;
};

template <class P>
void ForwardTask(const AttentionArgs& args, const attention_blocking::ForwardLayout& layout,
                 const attention_blocking::ForwardOperands& x, int64_t task, float* scratch) {
  const auto& [q, k, v, o, lse] = x;
  const Pieces& chunks = layout.chunks;
  const int64_t chunk = task % chunks.pieces, first = chunks.begin(chunk), end = chunks.begin(chunk + 1);
  const int64_t kv_head = task / chunks.pieces % args.kv_heads, sample = task / chunks.pieces / args.kv_heads;
  const int64_t group = args.query_heads / args.kv_heads, valid = valid_keys(args, sample);
  const int64_t keys = args.causal ? std::clamp<int64_t>(end + args.key_length - args.query_length, 0, valid) : valid;
  if (first == end) return;
  ForwardHead<P> head(args, layout, sample, scratch);
  FetchRows(q.data + (sample * q.batch_stride + kv_head * group * args.head_size + first * q.row_stride), q.row_stride,
            std::min(end - first, kQueryBlock), args.head_size);
  const Pieces blocks = Pieces::of_keys(keys);
  int64_t seen_from = 0;
  if (attention_blocking::hides_keys(args)) {
    seen_from = keys;
    for (int64_t i = first; i < end; ++i) seen_from = std::min(seen_from, first_key_seen(args, sample, i));
  }
  for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    head.start(first, end - first);
    for (int64_t block = 0; block < blocks.pieces; ++block) {
      const int64_t key = blocks.begin(block);
      if (blocks.begin(block + 1) <= seen_from) continue;
      if (h == kv_head * group || blocks.pieces > 1)  // a single block of keys is packed once for all heads
        head.pack_keys(k.data + (sample * k.batch_stride + kv_head * args.head_size), k.row_stride,
                       v.data + (sample * v.batch_stride + kv_head * args.head_size), v.row_stride, key,
                       blocks.begin(block + 1) - key);
      head.attend(q.data + (sample * q.batch_stride + h * args.head_size), q.row_stride, h);
    }
    head.finish(valid, o.data + (sample * o.batch_stride + h * args.head_size), o.row_stride,
                lse + (sample * args.query_heads + h) * args.query_length);
  }
}

}  // namespace linnet::HWY_NAMESPACE::attention
HWY_AFTER_NAMESPACE();

#endif
