// The forward and the backward pass of attention, for either precision.
#include <cmath>
#include <limits>
#include "engine/kernels/attention/attention-inl.h"
#include "engine/kernels/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE::attention {
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Scores are relative to a shift of each query, which starts at 0 and follows the largest score only outside of these
// bounds, within which fp32 keeps its relative error. So sums are rarely rescaled.
constexpr float kHighest = 30, kLowest = -60;

// From a tile of scores: stores 2^(score - shift), zero where dropped or not seen; adds to the sums and raises the
// maxima of the panel's queries. The maximum may lose a NaN; its exponential keeps it.
template <class P, Masking kMasking, int kVectors> HWY_NOINLINE void Exponentials(
    const Location& location, const float* scores, float* maximum, float* sum, float* weights) {
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

template <class Rows, class Floats> struct HeadOf {
  HeadOf(Rows rows, int64_t sample, int64_t head, int64_t size)
      : data(rows.data + (sample * rows.batch_stride + head * size)), stride(rows.row_stride) {}
  HeadOf(Floats data, int64_t stride) : data(data), stride(stride) {}
  Floats row(int64_t i) const { return data + i * stride; }

  Floats data;
  int64_t stride;
};
using Head = HeadOf<AttentionRows, StoredFloats>;
using MutableHead = HeadOf<MutableAttentionRows, MutableStoredFloats>;

// One chunk of queries of one query head, by blocks of keys.
template <class P> class ForwardHead {
 public:
  ForwardHead(const AttentionArgs& args, const attention_blocking::ForwardLayout& at, int64_t sample)
      : args_(args), at_(at), sample_(sample), dropout_(args, sample, at.mask) {}

  void start(int64_t first, int64_t queries) {
    first_ = first, queries_ = queries;
    for (int64_t i = 0; i < queries; i += kLanes) {  // there is room for whole vectors
      hn::Store(hn::Zero(d), d, at_.minus_shift + i);
      hn::Store(hn::Zero(d), d, at_.sum + i);
    }
    if (hides_) std::fill_n(at_.o, queries * width_, 0.0f);  // the first keys may be skipped
  }

  void pack_keys(const Head& k, const Head& v, int64_t first, int64_t keys) {
    first_key_ = first, keys_ = keys;
    PackScaledRows<P>(k.row(first), k.stride, keys, args_.head_size, args_.scale * kLog2E, at_.slice, at_.k);
    PackPanels<P>(v.row(first), v.stride, keys, args_.head_size, at_.v);
    exact_ = (args_.causal || hides_) && !AllFinite(v.row(first), v.stride, keys, args_.head_size);
  }

  // All queries of the chunk against the packed keys.
  void attend(const Head& q, int64_t head) {
    const Pieces blocks(queries_, kQueryBlock, attention_blocking::kUnit);
    for (int64_t block = 0; block < blocks.pieces; ++block) {
      const int64_t at = blocks.begin(block), queries = blocks.begin(block + 1) - at;
      if (block + 1 < blocks.pieces)
        FetchRows(q.row(first_ + at + queries), q.stride, blocks.begin(block + 2) - at - queries, args_.head_size);
      Window window{first_ + at, queries, first_key_, keys_, args_.causal, args_.key_length - args_.query_length};
      LimitWindow(args_, sample_, head, at_.starts, at_.bias, window);
      float* o = at_.o + at * width_;
      if (window.unseen()) {
        if (first_key_ == 0) std::fill_n(o, queries * width_, 0.0f);
        continue;
      }
      PackTransposed<P>(q.row(first_ + at), q.stride, queries, args_.head_size, at_.q);
      const uint8_t* kept = dropout_.draw(window, head);
      const int64_t panel = ceil_div(args_.head_size, P::kPair) * kWidth;
      for (int64_t i = 0; i < queries; i += kWidth) attend_panel(window, i, at, at_.q + i / kWidth * panel, kept, o);
      const auto weigh = exact_ ? WeighKeysExactly<P> : WeighKeys<P>;
      weigh(window, args_.head_size, at_.weights, at_.v, o, width_, first_key_ > 0 || hides_);
    }
  }

  // o = o / sum and the log-sum-exp, for a sample with `valid` keys.
  void finish(int64_t valid, const MutableHead& o, float* lse) {
    for (int64_t i = 0; i < queries_; i += kLanes) {
      const V sum = hn::Load(d, at_.sum + i);
      hn::Store(hn::NegMulAdd(hn::Set(d, kLn2), hn::Load(d, at_.minus_shift + i), Log(sum)), d, at_.minus_shift + i);
      hn::Store(hn::Div(hn::Set(d, dropout_.scale), sum), d, at_.sum + i);
    }
    for (int64_t i = 0; i < queries_; ++i) {
      if (i + kRowsAhead < queries_) FetchRow<3>(o.row(first_ + i + kRowsAhead), args_.head_size);
      const int64_t seen = args_.causal ? first_ + i + args_.key_length - args_.query_length + 1 : valid;
      const bool blind = std::min(seen, valid) <= (hides_ ? first_key_seen(args_, sample_, first_ + i) : 0);
      lse[first_ + i] = blind ? kMinusInfinity : at_.minus_shift[i];
      const MutableStoredFloats out = o.row(first_ + i);
      if (blind) clear_floats(args_.head_size, out);
      else WriteScaled(at_.o + i * width_, at_.sum[i], args_.head_size, false, out);
    }
  }

 private:
  // Queries from i of the window, which begins at `at` in the chunk.
  void attend_panel(const Window& window, int64_t i, int64_t at, const float* q, const uint8_t* kept, float* o) {
    TileEnds ends = exponentials(window, i, at + i, q, kept);
    if (follow_maximum(window, i, at + i, o)) ends = exponentials(window, i, at + i, q, kept);
    for (int64_t h = 0; h < kWidth; h += kLanes)
      hn::Store(hn::Add(hn::Load(d, at_.sum + at + i + h), hn::Load(d, at_.block_sum + h)), d, at_.sum + at + i + h);
    ClearUnseen<P>(window, i, ends, at_.weights);
  }

  TileEnds exponentials(const Window& window, int64_t i, int64_t at, const float* q, const uint8_t* kept) {
    for (int64_t h = 0; h < kWidth; h += kLanes) {
      hn::Store(hn::Set(d, kMinusInfinity), d, at_.maximum + h);
      hn::Store(hn::Zero(d), d, at_.block_sum + h);
    }
    return ForTiles<P>(window, i, kept,
        [&]<Masking kMasking>(const Location& location) LINNET_LAMBDA { tile<kMasking>(location, at, q); });
  }
  template <Masking kMasking> HWY_INLINE void tile(const Location& location, int64_t at, const float* q) {
    const int64_t i = location.in_panel();
    HWY_ALIGN float scores[kRows * kWidth];
    Scores<P, kMasking>(location, ceil_div(args_.head_size, P::kPair), at_.k, at_.slice - kSliceDepth<P>, q + i,
        at_.minus_shift + at + i, scores, kWidth);
    const auto finish = location.columns > kLanes ? Exponentials<P, kMasking, 2> : Exponentials<P, kMasking, 1>;
    finish(location, scores, at_.maximum + i, at_.block_sum + i, at_.weights);
  }

  // Moves the shift of queries whose largest score is out of bounds, and rescales their sums; a sum that is still zero
  // also follows scores far below. Returns whether any moved.
  bool follow_maximum(const Window& window, int64_t i, int64_t at, float* o) {
    bool moved = false;
    for (int64_t h = 0; h < std::min<int64_t>(kWidth, round_up(window.queries - i, kLanes)); h += kLanes) {
      const V top = hn::Load(d, at_.maximum + h), sum = hn::Load(d, at_.sum + at + h);
      const auto nothing = hn::Eq(sum, hn::Zero(d));
      const auto low =
          hn::And(nothing, hn::And(hn::Lt(top, hn::Set(d, kLowest)), hn::Gt(top, hn::Set(d, kMinusInfinity))));
      const auto out = hn::Or(low, hn::Gt(top, hn::Set(d, kHighest)));
      if (hn::AllFalse(d, out)) continue;
      moved = true;
      const V move = hn::IfThenElseZero(out, top);
      const V fade = hn::IfThenZeroElse(nothing, Exp2<P::kExpDegree>(hn::Neg(move)));
      hn::Store(hn::Sub(hn::Load(d, at_.minus_shift + at + h), move), d, at_.minus_shift + at + h);
      hn::Store(hn::Mul(sum, fade), d, at_.sum + at + h);
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
  const attention_blocking::ForwardLayout& at_;
  const int64_t sample_;
  const bool hides_ = attention_blocking::hides_keys(args_);
  const Dropout dropout_;
  const int64_t width_ = round_up(args_.head_size, kWidth);  // of rows of at_.o
  int64_t first_ = 0, queries_ = 0, first_key_ = 0, keys_ = 0;
  bool exact_ = false;
};

template <class P> void ForwardTask(
    const AttentionArgs& args, const attention_blocking::ForwardOperands& x, int64_t task, float* scratch) {
  const attention_blocking::ForwardLayout layout(args, scratch);
  const Pieces& chunks = layout.chunks;
  const int64_t chunk = task % chunks.pieces, first = chunks.begin(chunk), end = chunks.begin(chunk + 1);
  const int64_t kv_head = task / chunks.pieces % args.kv_heads, sample = task / chunks.pieces / args.kv_heads;
  const int64_t size = args.head_size, group = args.query_heads / args.kv_heads, valid = valid_keys(args, sample);
  const int64_t keys = args.causal ? std::clamp<int64_t>(end + args.key_length - args.query_length, 0, valid) : valid;
  if (first == end) return;
  ForwardHead<P> head(args, layout, sample);
  const Head k(x.k, sample, kv_head, size), v(x.v, sample, kv_head, size), q(x.q, sample, kv_head * group, size);
  FetchRows(q.row(first), q.stride, std::min(end - first, kQueryBlock), size);
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
        head.pack_keys(k, v, key, blocks.begin(block + 1) - key);
      head.attend(Head(x.q, sample, h, size), h);
    }
    head.finish(valid, MutableHead(x.o, sample, h, size), x.lse + (sample * args.query_heads + h) * args.query_length);
  }
}

HWY_INLINE float Dot(StoredFloats a, StoredFloats b, int64_t count) {
  V sum = hn::Zero(d);
  ForRow(count, [&](const auto& at) LINNET_LAMBDA { sum = hn::MulAdd(at.load(a), at.load(b), sum); });
  return SumLanes(sum);
}

// Turns a tile of scores into probabilities 2^(score - lse), zero where not seen.
template <class P, Masking kMasking, int kVectors>
HWY_NOINLINE void Probabilities(const Location& location, float* scores, int64_t stride) {
  SeenIn<kMasking, kVectors> seen(location);
  for (int64_t i = 0; i < location.rows; i += 2) {
    if constexpr (hides(kMasking)) seen.start_pair(i);
#pragma GCC unroll 2
    for (int row = 0; row < 2; ++row)
#pragma GCC unroll 2
      for (int h = 0; h < kVectors; ++h) {
        float* at = scores + (i + row) * stride + h * kLanes;
        V p = Exp2<P::kExpDegree>(hn::Load(d, at));
        if constexpr (hides(kMasking)) p = seen.zero_unseen(row, h, p);
        hn::Store(p, d, at);
      }
  }
}

struct GradientPlaces {  // of a tile
  float *p, *ds, *ds_by_key;
  float* ds_exact;  // for the bias's gradient
};

// From a tile of dp - D with dp = scale do v^T: stores ds = p (keep dp - D) in both forms, and p where kept.
template <class P, Masking kMasking, int kVectors> HWY_NOINLINE void ScoreGradients(const Location& location,
    const float* differences, const float* minus_correction, const float* probabilities, int64_t stride,
    const GradientPlaces& to) {
  const bool drops = kMasking == Masking::kDropout || (hides(kMasking) && location.kept);
  SeenIn<kMasking, kVectors> seen(location);
  for (int64_t i = 0; i < location.rows; i += 2) {
    V weight[2][kVectors], gradient[2][kVectors];
    if constexpr (hides(kMasking)) seen.start_pair(i);
#pragma GCC unroll 2
    for (int row = 0; row < 2; ++row)
#pragma GCC unroll 2
      for (int h = 0; h < kVectors; ++h) {
        V dp = hn::Load(d, differences + (i + row) * kWidth + h * kLanes);
        const V probability = hn::Load(d, probabilities + (i + row) * stride + h * kLanes);
        weight[row][h] = probability;
        if (drops) {
          const auto kept = Kept(location, i + row, h);
          dp = hn::IfThenElse(kept, dp, hn::Load(d, minus_correction + h * kLanes));
          weight[row][h] = hn::IfThenElseZero(kept, probability);
        }
        gradient[row][h] = hn::Mul(probability, dp);
        if constexpr (hides(kMasking)) gradient[row][h] = seen.zero_unseen(row, h, gradient[row][h]);
        if (kMasking == Masking::kLimited && location.window.bias)
          hn::Store(
              gradient[row][h], d, to.ds_exact + (location.key + i + row) * kScoreStride + location.query + h * kLanes);
      }
    if (!P::kOneForm || drops) P::StoreAlongQueries(weight, location.key + i, location.query, to.p);
    if (!P::kOneForm) P::StoreAlongQueries(gradient, location.key + i, location.query, to.ds);
    P::StoreAlongKeys(gradient, location.key + i, location.query, to.ds_by_key);
  }
}

// out[i - j] += ds[j, i], sums along diagonals: in rows of one element more they are columns. Zeros surround the block,
// kBiasLead before it; a vector's end may lie behind out[queries - 1].
HWY_INLINE void AddDiagonals(int64_t keys, int64_t queries, const float* ds, float* out) {
  for (int64_t first = 1 - keys; first < queries; first += kLanes) {
    V sum = hn::LoadU(d, out + first);
    const int64_t begin = std::max<int64_t>(0, 1 - first - kLanes), end = std::min(keys, queries - first);
    for (int64_t j = begin; j < end; ++j) sum = hn::Add(sum, hn::LoadU(d, ds + j * (kScoreStride + 1) + first));
    hn::StoreU(sum, d, out + first);
  }
}

// Gradients of one key-value head and the query heads that use it. With p = exp(s - lse), D = sum_k do * o of a row:
//   dv = (keep p)^T do,  dp = keep (do v^T),  ds = p (dp - D),  dq = scale ds k,  dk = scale ds^T q
// where keep is the dropout mask with its scale. Loops over blocks of keys, then heads, then blocks of queries.
template <class P> class BackwardHead {
 public:
  BackwardHead(const AttentionArgs& args, const attention_blocking::BackwardLayout& at, int64_t sample)
      : args_(args), size_(args.head_size), width_(round_up(args.head_size, kWidth)), at_(at), sample_(sample),
        dropout_(args, sample, at.mask) {}

  void start_keys(const Head& k, const Head& v, int64_t first, int64_t keys) {
    first_key_ = first, keys_ = keys;
    PackScaledRows<P>(k.row(first), k.stride, keys, size_, args_.scale * kLog2E, at_.slice, at_.k_rows);
    PackScaledRows<P>(v.row(first), v.stride, keys, size_, dropout_.scale, at_.slice, at_.v_rows);
    PackPanels<P>(k.row(first), k.stride, keys, size_, at_.k);
    keys_finite_ = AllFinite(k.row(first), k.stride, keys, size_);
    std::fill_n(at_.dk, round_up(keys, 2) * width_, 0.0f);
    std::fill_n(at_.dv, round_up(keys, 2) * width_, 0.0f);
  }

  // One query head against the packed keys: adds to dk and dv, writes dq (or adds, after the first block of keys).
  // d_bias: of this sample and head, by i - j + key_length - 1; null without a bias.
  void attend(const Head& q, const Head& o, const Head& d_o, const float* lse, int64_t head, const MutableHead& dq,
      float* d_bias) {
    const int64_t live = live_queries(o, d_o, lse);
    const Pieces blocks(live, kQueryBlock, attention_blocking::kUnit);
    for (int64_t block = 0; block < blocks.pieces; ++block) {
      const int64_t first = blocks.begin(block), end = blocks.begin(block + 1);
      if (block + 1 < blocks.pieces) fetch_queries(end, blocks.begin(block + 2), q, o, d_o);
      FetchRows(dq.row(first), dq.stride, end - first, size_);
      Window window{first, end - first, first_key_, keys_, args_.causal, args_.key_length - args_.query_length};
      LimitWindow(args_, sample_, head, at_.starts, at_.bias, window);
      if (!window.unseen()) {
        attend_block(window, q, o, d_o, lse + first, head, dq);
        if (d_bias) AddDiagonals(keys_, window.queries, ds_exact(), d_bias + args_.key_length - 1 + first - first_key_);
      } else if (first_key_ == 0) {
        for (int64_t i = first; i < end; ++i) clear_floats(size_, dq.row(i));
      }
    }
    if (first_key_ == 0)
      for (int64_t i = live; i < args_.query_length; ++i) clear_floats(size_, dq.row(i));
  }

  void fetch_queries(int64_t first, int64_t end, const Head& q, const Head& o, const Head& d_o) const {
    for (const Head* rows : {&q, &o, &d_o}) FetchRows(rows->row(first), rows->stride, end - first, size_);
  }

  void finish_keys(const MutableHead& dk, const MutableHead& dv) {
    for (int64_t j = 0; j < keys_; ++j) {
      if (j + kRowsAhead < keys_) {
        FetchRow<3>(dk.row(first_key_ + j + kRowsAhead), size_);
        FetchRow<3>(dv.row(first_key_ + j + kRowsAhead), size_);
      }
      WriteScaled(at_.dk + j * width_, args_.scale, size_, false, dk.row(first_key_ + j));
      WriteScaled(at_.dv + j * width_, dropout_.scale, size_, false, dv.row(first_key_ + j));
    }
  }

 private:
  // Skips queries at the end whose gradient do is zero (as for padding), and so all their products: a NaN or infinity
  // to multiply with would show in o, in the log-sum-exp or in the keys.
  int64_t live_queries(const Head& o, const Head& d_o, const float* lse) const {
    int64_t live = args_.query_length;
    while (keys_finite_ && live > 0 && Dot(d_o.row(live - 1), d_o.row(live - 1), size_) == 0 &&
           !std::isnan(lse[live - 1]) && lse[live - 1] < std::numeric_limits<float>::infinity() &&
           AllFinite(o.row(live - 1), o.stride, 1, size_))
      --live;
    return live;
  }

  void attend_block(const Window& window, const Head& q, const Head& o, const Head& d_o, const float* lse, int64_t head,
      const MutableHead& dq) {
    const int64_t first = window.first_query, queries = window.queries;
    float *q_panels = at_.q, *do_panels = at_.d_o, *block_dq = at_.dq;
    PackTransposed<P>(q.row(first), q.stride, queries, size_, at_.q_transposed);
    PackTransposed<P>(d_o.row(first), d_o.stride, queries, size_, at_.do_transposed);
    PackPanels<P>(q.row(first), q.stride, queries, size_, q_panels);
    PackPanels<P>(d_o.row(first), d_o.stride, queries, size_, do_panels);
    bool finite = keys_finite_;
    for (int64_t i = 0; i < round_up(queries, kWidth); ++i) {
      const bool inside = i < queries;
      at_.lse[i] = inside ? -lse[i] * kLog2E : 0.0f;
      at_.correction[i] = inside ? -Dot(d_o.row(first + i), o.row(first + i), size_) : 0.0f;
      finite &= std::isfinite(at_.lse[i]) && std::isfinite(at_.correction[i]);
    }
    const uint8_t* kept = dropout_.draw(window, head);
    if (args_.biased) std::fill_n(at_.ds_exact, attention_blocking::kBiasLead + (keys_ + 1) * kScoreStride, 0.0f);
    for (int64_t i = 0; i < queries; i += kWidth) weights_of_panel(window, i, kept);
    // A query that sees a key has a finite log-sum-exp and sum of do * o only if it and do are finite.
    const bool exact = (args_.causal || attention_blocking::hides_keys(args_)) && !finite &&
                       !(keys_finite_ && AllFinite(q.row(first), q.stride, queries, size_) &&
                           AllFinite(d_o.row(first), d_o.stride, queries, size_));
    const auto weigh_queries = exact ? WeighQueriesExactly<P> : WeighQueries<P>;
    const auto weigh_keys = exact ? WeighKeysExactly<P> : WeighKeys<P>;
    const float* ds_by_key = at_.ds_by_key;
    weigh_queries(window, size_, at_.p, do_panels, at_.dv, width_);
    weigh_queries(window, size_, P::kOneForm ? ds_by_key : at_.ds, q_panels, at_.dk, width_);
    weigh_keys(window, size_, ds_by_key, at_.k, block_dq, width_, false);
    for (int64_t i = 0; i < queries; ++i)
      WriteScaled(block_dq + i * width_, args_.scale, size_, first_key_ > 0, dq.row(first + i));
  }

  float* ds_exact() const { return at_.ds_exact ? at_.ds_exact + attention_blocking::kBiasLead : nullptr; }

  void weights_of_panel(const Window& window, int64_t i, const uint8_t* kept) {
    const TileEnds ends = ForTiles<P>(
        window, i, kept, [&]<Masking kMasking>(const Location& location) LINNET_LAMBDA { tile<kMasking>(location); });
    ClearUnseen<P>(window, i, ends, at_.ds_by_key);
  }

  template <Masking kMasking> HWY_INLINE void tile(const Location& location) {
    constexpr Masking kOfScores = kMasking == Masking::kDropout ? Masking::kNone : kMasking;
    const bool wide = location.columns > kLanes;
    const int64_t depth = ceil_div(size_, P::kPair), skip = at_.slice - kSliceDepth<P>;
    const int64_t panel = location.query / kWidth * depth * kWidth + location.in_panel();
    HWY_ALIGN float waiting[kRows * kWidth], differences[kRows * kWidth];
    // In fp32, probabilities go to their final location; in bf16 they wait in fp32 for their gradients.
    const int64_t stride = P::kOneForm ? P::kAlongKeys : kWidth;
    float* p = P::kOneForm ? at_.p + location.key * stride + location.query : waiting;
    Scores<P, kOfScores>(
        location, depth, at_.k_rows, skip, at_.q_transposed + panel, at_.lse + location.query, p, stride);
    (wide ? Probabilities<P, kOfScores, 2> : Probabilities<P, kOfScores, 1>)(location, p, stride);
    const float* correction = at_.correction + location.query;
    Scores<P, Masking::kNone>(
        location, depth, at_.v_rows, skip, at_.do_transposed + panel, correction, differences, kWidth);
    (wide ? ScoreGradients<P, kMasking, 2> : ScoreGradients<P, kMasking, 1>)(location, differences, correction, p,
        stride, {at_.p, at_.ds, at_.ds_by_key, ds_exact()});
  }

  const AttentionArgs& args_;
  const int64_t size_, width_;
  const attention_blocking::BackwardLayout& at_;
  const int64_t sample_;
  const Dropout dropout_;
  int64_t first_key_ = 0, keys_ = 0;
  bool keys_finite_ = true;
};

template <class P> void BackwardTask(
    const AttentionArgs& args, const attention_blocking::BackwardOperands& x, int64_t task, float* scratch) {
  const attention_blocking::BackwardLayout layout(args, scratch);
  const int64_t kv_head = task % args.kv_heads, sample = task / args.kv_heads, size = args.head_size;
  const int64_t group = args.query_heads / args.kv_heads, valid = valid_keys(args, sample);
  const Head k(x.k, sample, kv_head, size), v(x.v, sample, kv_head, size);
  const MutableHead dk(x.dk, sample, kv_head, size), dv(x.dv, sample, kv_head, size);
  BackwardHead<P> backward(args, layout, sample);
  const int64_t bias_row = attention_blocking::bias_gradient_row(args);
  const auto bias_gradient = [&](int64_t h) {
    return x.bias_gradients ? x.bias_gradients + (sample * args.query_heads + h) * bias_row : nullptr;
  };
  if (x.bias_gradients) std::fill_n(bias_gradient(kv_head * group), group * bias_row, 0.0f);
  const Pieces blocks = Pieces::of_keys(valid);
  // dq of a query head, or of its sums over several blocks of keys.
  const bool sums_dq = layout.sums_dq && blocks.pieces > 1;
  const auto dq_of = [&](int64_t h) {
    if (!sums_dq) return MutableHead(x.dq, sample, h, size);
    return MutableHead(layout.dq_sums + h % group * args.query_length * size, size);
  };
  for (int64_t block = 0; block < blocks.pieces; ++block) {
    const Head q(x.q, sample, kv_head * group, size), o(x.o, sample, kv_head * group, size);
    backward.fetch_queries(
        0, std::min(args.query_length, kQueryBlock), q, o, Head(x.d_o, sample, kv_head * group, size));
    backward.start_keys(k, v, blocks.begin(block), blocks.begin(block + 1) - blocks.begin(block));
    for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h)
      backward.attend(Head(x.q, sample, h, size), Head(x.o, sample, h, size), Head(x.d_o, sample, h, size),
          x.lse + (sample * args.query_heads + h) * args.query_length, h, dq_of(h), bias_gradient(h));
    backward.finish_keys(dk, dv);
  }
  for (int64_t j = valid; j < args.key_length; ++j) {
    clear_floats(size, dk.row(j));
    clear_floats(size, dv.row(j));
  }
  if (valid > 0 && !sums_dq) return;
  for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    const MutableHead dq(x.dq, sample, h, size), sums = dq_of(h);
    for (int64_t i = 0; i < args.query_length; ++i)
      if (valid == 0) clear_floats(size, dq.row(i));
      else WriteScaled(sums.row(i).f32(), 1, size, false, dq.row(i));
  }
}
}  // namespace linnet::HWY_NAMESPACE::attention
HWY_AFTER_NAMESPACE();
