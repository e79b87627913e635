// The backward pass of attention, for either precision. Included by *_simd.cpp after "hwy/foreach_target.h".
#if defined(LINNET_KERNELS_ATTENTION_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_ATTENTION_BACKWARD_INL_H_
#undef LINNET_KERNELS_ATTENTION_BACKWARD_INL_H_
#else
#define LINNET_KERNELS_ATTENTION_BACKWARD_INL_H_
#endif

#include <cmath>
#include <limits>
#include <type_traits>
#include "engine/kernels/attention/attention-inl.h"
#include "engine/kernels/attention/attention_dropout-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE::attention {

// One head's rows of an operand.
struct Head {
  Head(AttentionRows rows, int64_t sample, int64_t head, int64_t size)
      : data(rows.data + (sample * rows.batch_stride + head * size)), stride(rows.row_stride) {}
  StoredFloats row(int64_t i) const { return data + i * stride; }

  StoredFloats data;
  int64_t stride;
};
struct MutableHead {
  MutableHead(MutableAttentionRows rows, int64_t sample, int64_t head, int64_t size)
      : data(rows.data + (sample * rows.batch_stride + head * size)), stride(rows.row_stride) {}
  MutableHead(float* sums, int64_t size) : data(sums), stride(size) {}
  MutableStoredFloats row(int64_t i) const { return data + i * stride; }

  MutableStoredFloats data;
  int64_t stride;
};

HWY_INLINE float Dot(StoredFloats a, StoredFloats b, int64_t count) {
  V sum = hn::Zero(d);
  ForRow(count, [&](const auto& at) LINNET_LAMBDA { sum = hn::MulAdd(at.load(a), at.load(b), sum); });
  return SumLanes(sum);
}

// Of a tile of scores, the probabilities 2^(score - lse) in their place, zero where not seen.
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

// Where a tile's gradients go.
struct GradientPlaces {
  float *p, *ds, *ds_by_key;
  float* ds_exact;  // for the bias's gradient
};

// Of a tile of dp - D, where dp = scale do v^T: stores ds = p (keep dp - D) in both forms, and p where kept.
template <class P, Masking kMasking, int kVectors>
HWY_NOINLINE void ScoreGradients(const Location& location, const float* differences, const float* minus_correction,
                                 const float* probabilities, int64_t stride, const GradientPlaces& to) {
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
          hn::Store(gradient[row][h], d,
                    to.ds_exact + (location.key + i + row) * kScoreStride + location.query + h * kLanes);
      }
    if (!P::kOneForm || drops) P::StoreAlongQueries(weight, location.key + i, location.query, to.p);
    if (!P::kOneForm) P::StoreAlongQueries(gradient, location.key + i, location.query, to.ds);
    P::StoreAlongKeys(gradient, location.key + i, location.query, to.ds_by_key);
  }
}

// out[i - j] += ds[j, i], the sums along the diagonals: in rows of one element more they are columns. Around the block
// there are zeros, kBiasLead of them before it; a vector's end may lie behind out[queries - 1].
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
// where keep is the dropout mask with its scale. Blocks of keys outside, heads and blocks of queries inside.
template <class P>
class BackwardHead {
 public:
  BackwardHead(const AttentionArgs& args, const attention_blocking::BackwardLayout& at, int64_t sample, float* scratch)
      : args_(args),
        size_(args.head_size),
        width_(round_up(args.head_size, kWidth)),
        at_(at),
        scratch_(scratch),
        sample_(sample),
        dropout_(args, sample, scratch + at_.mask) {}

  void start_keys(const Head& k, const Head& v, int64_t first, int64_t keys) {
    first_key_ = first, keys_ = keys;
    PackScaledRows<P>(k.row(first), k.stride, keys, size_, args_.scale * kLog2E, at_.slice, scratch_ + at_.k_rows);
    PackScaledRows<P>(v.row(first), v.stride, keys, size_, dropout_.scale, at_.slice, scratch_ + at_.v_rows);
    PackPanels<P>(k.row(first), k.stride, keys, size_, scratch_ + at_.k);
    keys_finite_ = AllFinite(k.row(first), k.stride, keys, size_);
    std::fill_n(scratch_ + at_.dk, round_up(keys, 2) * width_, 0.0f);
    std::fill_n(scratch_ + at_.dv, round_up(keys, 2) * width_, 0.0f);
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
      LimitWindow(args_, sample_, head, scratch_ + at_.starts, scratch_ + at_.bias, window);
      if (!window.unseen()) {
        attend_block(window, q, o, d_o, lse + first, head, dq);
        if (d_bias)
          AddDiagonals(keys_, window.queries, scratch_ + at_.ds_exact,
                       d_bias + args_.key_length - 1 + first - first_key_);
      } else if (first_key_ == 0) {
        for (int64_t i = first; i < end; ++i) ClearRow(dq.row(i), size_);
      }
    }
    if (first_key_ == 0)
      for (int64_t i = live; i < args_.query_length; ++i) ClearRow(dq.row(i), size_);
  }

  // What a block of queries reads.
  void fetch_queries(int64_t first, int64_t end, const Head& q, const Head& o, const Head& d_o) const {
    for (const Head* rows : {&q, &o, &d_o}) FetchRows(rows->row(first), rows->stride, end - first, size_);
  }

  void finish_keys(const MutableHead& dk, const MutableHead& dv) {
    for (int64_t j = 0; j < keys_; ++j) {
      if (j + kRowsAhead < keys_) {
        FetchRow<3>(dk.row(first_key_ + j + kRowsAhead), size_);
        FetchRow<3>(dv.row(first_key_ + j + kRowsAhead), size_);
      }
      WriteScaled(scratch_ + at_.dk + j * width_, args_.scale, size_, false, dk.row(first_key_ + j));
      WriteScaled(scratch_ + at_.dv + j * width_, dropout_.scale, size_, false, dv.row(first_key_ + j));
    }
  }

 private:
  // Without the queries at the end whose gradient do is zero (those of padding are), and so are all products with it:
  // were there a NaN or infinity to multiply with, it would show in o, in the log-sum-exp or in the keys.
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
    float *q_panels = scratch_ + at_.q, *do_panels = scratch_ + at_.d_o, *block_dq = scratch_ + at_.dq;
    PackTransposed<P>(q.row(first), q.stride, queries, size_, scratch_ + at_.q_transposed);
    PackTransposed<P>(d_o.row(first), d_o.stride, queries, size_, scratch_ + at_.do_transposed);
    PackPanels<P>(q.row(first), q.stride, queries, size_, q_panels);
    PackPanels<P>(d_o.row(first), d_o.stride, queries, size_, do_panels);
    bool finite = keys_finite_;
    for (int64_t i = 0; i < round_up(queries, kWidth); ++i) {
      const bool inside = i < queries;
      scratch_[at_.lse + i] = inside ? -lse[i] * kLog2E : 0.0f;
      scratch_[at_.correction + i] = inside ? -Dot(d_o.row(first + i), o.row(first + i), size_) : 0.0f;
      finite &= std::isfinite(scratch_[at_.lse + i]) && std::isfinite(scratch_[at_.correction + i]);
    }
    const uint8_t* kept = dropout_.draw(window, head);
    if (args_.biased)
      std::fill_n(scratch_ + at_.ds_exact - attention_blocking::kBiasLead,
                  attention_blocking::kBiasLead + (keys_ + 1) * kScoreStride, 0.0f);
    for (int64_t i = 0; i < queries; i += kWidth) weights_of_panel(window, i, kept);

    // A query that sees a key has a finite log-sum-exp and sum of do * o only if it and do are finite.
    const bool exact = (args_.causal || attention_blocking::hides_keys(args_)) && !finite &&
                       !(keys_finite_ && AllFinite(q.row(first), q.stride, queries, size_) &&
                         AllFinite(d_o.row(first), d_o.stride, queries, size_));
    const auto weigh_queries = exact ? WeighQueriesExactly<P> : WeighQueries<P>;
    const auto weigh_keys = exact ? WeighKeysExactly<P> : WeighKeys<P>;
    const float* ds_by_key = scratch_ + at_.ds_by_key;
    weigh_queries(window, size_, scratch_ + at_.p, do_panels, scratch_ + at_.dv, width_);
    weigh_queries(window, size_, P::kOneForm ? ds_by_key : scratch_ + at_.ds, q_panels, scratch_ + at_.dk, width_);
    weigh_keys(window, size_, ds_by_key, scratch_ + at_.k, block_dq, width_, false);
    for (int64_t i = 0; i < queries; ++i)
      WriteScaled(block_dq + i * width_, args_.scale, size_, first_key_ > 0, dq.row(first + i));
  }

  void weights_of_panel(const Window& window, int64_t i, const uint8_t* kept) {
    const TileEnds ends = ForTiles<P>(window, i, kept, [&](const Location& location, Masking masking) LINNET_LAMBDA {
      switch (masking) {
        case Masking::kNone: return tile<Masking::kNone>(location);
        case Masking::kDropout: return tile<Masking::kDropout>(location);
        case Masking::kAny: return tile<Masking::kAny>(location);
        case Masking::kLimited: return tile<Masking::kLimited>(location);
      }
    });
    ClearUnseen<P>(window, i, ends, scratch_ + at_.ds_by_key);
  }

  template <Masking kMasking>
  HWY_INLINE void tile(const Location& location) {
    constexpr Masking kOfScores = kMasking == Masking::kDropout ? Masking::kNone : kMasking;
    const bool wide = location.columns > kLanes;
    const int64_t depth = ceil_div(size_, P::kPair), skip = at_.slice - kSliceDepth<P>;
    const int64_t panel = location.query / kWidth * depth * kWidth + location.in_panel();
    HWY_ALIGN float waiting[kRows * kWidth], differences[kRows * kWidth];
    // In fp32 probabilities go where they will be read; in bf16 they wait in fp32 for their gradients.
    const int64_t stride = P::kOneForm ? P::kAlongKeys : kWidth;
    float* p = P::kOneForm ? scratch_ + at_.p + location.key * stride + location.query : waiting;
    Scores<P, kOfScores>(location, depth, scratch_ + at_.k_rows, skip, scratch_ + at_.q_transposed + panel,
                         scratch_ + at_.lse + location.query, p, stride);
    (wide ? Probabilities<P, kOfScores, 2> : Probabilities<P, kOfScores, 1>)(location, p, stride);
    const float* correction = scratch_ + at_.correction + location.query;
    Scores<P, Masking::kNone>(location, depth, scratch_ + at_.v_rows, skip, scratch_ + at_.do_transposed + panel,
                              correction, differences, kWidth);
    (wide ? ScoreGradients<P, kMasking, 2>
          : ScoreGradients<P, kMasking, 1>)(location, differences, correction, p, stride,
                                            {scratch_ + at_.p, scratch_ + at_.ds, scratch_ + at_.ds_by_key,
                                             scratch_ + at_.ds_exact});
  }

  const AttentionArgs& args_;
  const int64_t size_, width_;
  const attention_blocking::BackwardLayout& at_;
  float* scratch_;
  const int64_t sample_;
  const Dropout dropout_;
  int64_t first_key_ = 0, keys_ = 0;
  bool keys_finite_ = true;
};

template <class P>
void BackwardTask(const AttentionArgs& args, const attention_blocking::BackwardLayout& layout,
                  const attention_blocking::BackwardOperands& x, int64_t task, float* scratch) {
  const int64_t kv_head = task % args.kv_heads, sample = task / args.kv_heads, size = args.head_size;
  const int64_t group = args.query_heads / args.kv_heads, valid = valid_keys(args, sample);
  const Head k(x.k, sample, kv_head, size), v(x.v, sample, kv_head, size);
  const MutableHead dk(x.dk, sample, kv_head, size), dv(x.dv, sample, kv_head, size);
  BackwardHead<P> backward(args, layout, sample, scratch);
  const int64_t bias_row = attention_blocking::bias_gradient_row(args);
  const auto bias_gradient = [&](int64_t h) {
    return x.bias_gradients ? x.bias_gradients + (sample * args.query_heads + h) * bias_row : nullptr;
  };
  if (x.bias_gradients) std::fill_n(bias_gradient(kv_head * group), group * bias_row, 0.0f);
  const Pieces blocks = Pieces::of_keys(valid);
  // dq of a query head, or where its sums over several blocks of keys are kept.
  const bool sums_dq = layout.sums_dq && blocks.pieces > 1;
  const auto dq_of = [&](int64_t h) {
    if (!sums_dq) return MutableHead(x.dq, sample, h, size);
    return MutableHead(scratch + layout.dq_sums + h % group * args.query_length * size, size);
  };
  for (int64_t block = 0; block < blocks.pieces; ++block) {
    const Head q(x.q, sample, kv_head * group, size), o(x.o, sample, kv_head * group, size);
    backward.fetch_queries(0, std::min(args.query_length, kQueryBlock), q, o,
                           Head(x.d_o, sample, kv_head * group, size));
    backward.start_keys(k, v, blocks.begin(block), blocks.begin(block + 1) - blocks.begin(block));
    for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h)
      backward.attend(Head(x.q, sample, h, size), Head(x.o, sample, h, size), Head(x.d_o, sample, h, size),
                      x.lse + (sample * args.query_heads + h) * args.query_length, h, dq_of(h), bias_gradient(h));
    backward.finish_keys(dk, dv);
  }
  for (int64_t j = valid; j < args.key_length; ++j) {
    ClearRow(dk.row(j), size);
    ClearRow(dv.row(j), size);
  }
  if (valid > 0 && !sums_dq) return;
  for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    const MutableHead dq(x.dq, sample, h, size), sums = dq_of(h);
    for (int64_t i = 0; i < args.query_length; ++i)
      if (valid == 0) ClearRow(dq.row(i), size);
      else WriteScaled(sums.row(i).f32(), 1, size, false, dq.row(i));
  }
}

}  // namespace linnet::HWY_NAMESPACE::attention
HWY_AFTER_NAMESPACE();

#endif
