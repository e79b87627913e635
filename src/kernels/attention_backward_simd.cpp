#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/thread_pool.h"
#include "kernels/attention.h"
#include "kernels/attention_blocking.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_backward_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

using namespace attention;

// One head's rows of an operand.
struct Head {
  Head(AttentionRows rows, int64_t sample, int64_t head, int64_t size)
      : data(rows.data + sample * rows.batch_stride + head * size), stride(rows.row_stride) {}
  const float* row(int64_t i) const { return data + i * stride; }

  const float* data;
  int64_t stride;
};
struct MutableHead {
  MutableHead(MutableAttentionRows rows, int64_t sample, int64_t head, int64_t size)
      : data(rows.data + sample * rows.batch_stride + head * size), stride(rows.row_stride) {}
  float* row(int64_t i) const { return data + i * stride; }

  float* data;
  int64_t stride;
};

HWY_INLINE float Dot(const float* a, const float* b, int64_t count) {
  V sum = hn::Zero(d);
  int64_t k = 0;
  for (; k + kLanes <= count; k += kLanes) sum = hn::MulAdd(hn::LoadU(d, a + k), hn::LoadU(d, b + k), sum);
  float result = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; k < count; ++k) result += a[k] * b[k];
  return result;
}

// out[keys, width] += weights[rows, keys]^T times the panels of [rows, width], only over the rows that see a key.
HWY_INLINE void WeighRows(const Window& window, bool exact, int64_t width, const float* weights, const float* panels,
                          float* out, int64_t out_stride) {
  const Tiles tiles(window.keys, exact);
  for (int64_t k = 0; k < width; k += kWidth, panels += window.rows * kWidth)
    for (int64_t t = 0; t < tiles.tiles; ++t) {
      const int64_t j = tiles.begin(t), first = window.first_seer(j);
      if (first >= window.rows) break;  // and neither does it see later keys
      tile::kStridedTiles<1, kStride>[tiles.rows(t)](window.rows - first, weights + first * kStride + j,
                                                     panels + first * kWidth, out + j * out_stride + k, out_stride,
                                                     Finish{true});
    }
}

// Gradients of one key-value head and the query heads that use it. With p = exp(s - lse), D = sum_k do * o of a row:
//   dv = (keep p)^T do,  dp = keep (do v^T),  ds = p (dp - D),  dq = scale ds k,  dk = scale ds^T q
// where keep is the dropout mask with its scale. Blocks of keys outside, heads and blocks of rows inside.
class BackwardHead {
 public:
  BackwardHead(const AttentionArgs& args, float* scratch, int64_t sample)
      : args_(args),
        dropout_(args),
        sample_(sample),
        size_(args.head_size),
        width_(attention_blocking::round_up(args.head_size, kWidth)),
        at_(args),
        scratch_(scratch) {}

  void start_keys(const Head& k, const Head& v, int64_t first, int64_t keys) {
    first_key_ = first, keys_ = keys;
    PackTransposed(k.row(first), k.stride, keys, size_, scratch_ + at_.k_transposed);
    PackTransposed(v.row(first), v.stride, keys, size_, scratch_ + at_.v_transposed);
    PackPanels(k.row(first), k.stride, keys, size_, scratch_ + at_.k_panels);
    keys_finite_ = !args_.causal || AllFinite(scratch_ + at_.k_panels, keys, size_);
    std::fill_n(scratch_ + at_.dk, keys * width_, 0.0f);
    std::fill_n(scratch_ + at_.dv, keys * width_, 0.0f);
  }

  // One query head against the packed keys: adds to dk and dv, writes dq (or adds, after the first block of keys).
  void attend(const Head& q, const Head& o, const Head& d_o, const float* lse, int64_t head, const MutableHead& dq) {
    const int64_t blocks = attention_blocking::ceil_div(args_.query_length, kRowBlock);
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t row = block * args_.query_length / blocks, end = (block + 1) * args_.query_length / blocks;
      const Window window{row, end - row, first_key_, keys_, args_.causal, args_.key_length - args_.query_length};
      if (window.limit(window.rows - 1) == 0) {
        if (first_key_ == 0)
          for (int64_t i = row; i < end; ++i) std::fill_n(dq.row(i), size_, 0.0f);
        continue;
      }
      attend_block(window, q, o, d_o, lse, head, dq);
    }
  }

  void finish_keys(const MutableHead& dk, const MutableHead& dv) const {
    for (int64_t j = 0; j < keys_; ++j) {
      WriteScaled(scratch_ + at_.dk + j * width_, args_.scale, size_, false, dk.row(first_key_ + j));
      WriteScaled(scratch_ + at_.dv + j * width_, dropout_.scale, size_, false, dv.row(first_key_ + j));
    }
  }

 private:
  void attend_block(const Window& window, const Head& q, const Head& o, const Head& d_o, const float* lse, int64_t head,
                    const MutableHead& dq) {
    const int64_t row = window.first_row;
    float *p = scratch_ + at_.p, *ds = scratch_ + at_.ds, *block_dq = scratch_ + at_.dq;
    float *q_panels = scratch_ + at_.q_panels, *do_panels = scratch_ + at_.do_panels;
    PackScaledRows(q.row(row), q.stride, window.rows, size_, args_.scale * kLog2E, scratch_ + at_.q_rows);
    PackScaledRows(d_o.row(row), d_o.stride, window.rows, size_, 1.0f, scratch_ + at_.do_rows);
    PackPanels(q.row(row), q.stride, window.rows, size_, q_panels);
    PackPanels(d_o.row(row), d_o.stride, window.rows, size_, do_panels);
    const bool exact = args_.causal && !(keys_finite_ && AllFinite(q_panels, window.rows, size_) &&
                                         AllFinite(do_panels, window.rows, size_));

    Scores(window, size_, scratch_ + at_.q_rows, scratch_ + at_.k_transposed, p);
    Scores(window, size_, scratch_ + at_.do_rows, scratch_ + at_.v_transposed, ds);
    RandomRows random(dropout_, window, head, sample_, reinterpret_cast<uint16_t*>(scratch_ + at_.mask));
    for (int64_t i = 0; i < window.rows; ++i) {
      const int64_t limit = window.limit(i);
      const float correction = Dot(d_o.row(row + i), o.row(row + i), size_);
      if (limit > 0)
        softmax_gradient(p + i * kStride, ds + i * kStride, limit, lse[row + i], correction,
                         dropout_.active ? random.row(i, limit) : nullptr);
      std::fill(p + i * kStride + limit, p + i * kStride + window.keys, 0.0f);
      std::fill(ds + i * kStride + limit, ds + i * kStride + window.keys, 0.0f);
    }
    WeighRows(window, exact, size_, p, do_panels, scratch_ + at_.dv, width_);
    WeighRows(window, exact, size_, ds, q_panels, scratch_ + at_.dk, width_);
    WeighKeys(window, exact, size_, ds, scratch_ + at_.k_panels, block_dq, width_, false);
    for (int64_t i = 0; i < window.rows; ++i)
      WriteScaled(block_dq + i * width_, args_.scale, size_, first_key_ > 0, dq.row(row + i));
  }

  // In: s = scores, dp = do v^T. Out: s = the kept probabilities (not yet scaled), dp = ds.
  HWY_INLINE void softmax_gradient(float* s, float* dp, int64_t limit, float lse, float correction,
                                   const uint16_t* random) {
    const V base = hn::Set(d, lse * kLog2E), subtract = hn::Set(d, correction), scale = hn::Set(d, dropout_.scale);
    for (int64_t j = 0; j < limit; j += kLanes) {
      V p = Exp2(hn::Sub(hn::Load(d, s + j), base));
      V gradient = hn::Load(d, dp + j), kept = p;
      if (random) {
        gradient = dropout_.keep(hn::Mul(gradient, scale), random + j);
        kept = dropout_.keep(p, random + j);
      }
      gradient = hn::Mul(p, hn::Sub(gradient, subtract));
      if (j + kLanes > limit) {
        const auto rest = hn::FirstN(d, static_cast<size_t>(limit - j));
        kept = hn::IfThenElseZero(rest, kept);
        gradient = hn::IfThenElseZero(rest, gradient);
      }
      hn::Store(kept, d, s + j);
      hn::Store(gradient, d, dp + j);
    }
  }

  const AttentionArgs& args_;
  const Dropout dropout_;
  const int64_t sample_, size_, width_;
  const attention_blocking::BackwardLayout at_;
  float* scratch_;
  int64_t first_key_ = 0, keys_ = 0;
  bool keys_finite_ = true;
};

void backward_task(const AttentionArgs& args, const attention_blocking::BackwardOperands& x, int64_t task,
                   float* scratch) {
  const int64_t kv_head = task % args.kv_heads, sample = task / args.kv_heads, size = args.head_size;
  const int64_t group = args.query_heads / args.kv_heads, valid = valid_keys(args, sample);
  const Head k(x.k, sample, kv_head, size), v(x.v, sample, kv_head, size);
  const MutableHead dk(x.dk, sample, kv_head, size), dv(x.dv, sample, kv_head, size);
  BackwardHead backward(args, scratch, sample);
  for (int64_t key = 0; key < valid; key += kKeyBlock) {
    backward.start_keys(k, v, key, std::min(kKeyBlock, valid - key));
    for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h)
      backward.attend(Head(x.q, sample, h, size), Head(x.o, sample, h, size), Head(x.d_o, sample, h, size),
                      x.lse + (sample * args.query_heads + h) * args.query_length, h,
                      MutableHead(x.dq, sample, h, size));
    backward.finish_keys(dk, dv);
  }
  for (int64_t j = valid; j < args.key_length; ++j) {
    std::fill_n(dk.row(j), size, 0.0f);
    std::fill_n(dv.row(j), size, 0.0f);
  }
  if (valid == 0)
    for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h)
      for (int64_t i = 0; i < args.query_length; ++i)
        std::fill_n(MutableHead(x.dq, sample, h, size).row(i), size, 0.0f);
}

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {

HWY_EXPORT(backward_task);

size_t attention_backward_workspace(const AttentionArgs& args, int threads) {
  return static_cast<size_t>(attention_blocking::BackwardLayout(args).size() * threads) * sizeof(float);
}

void attention_backward(const AttentionArgs& args, AttentionRows q, AttentionRows k, AttentionRows v, AttentionRows o,
                        const float* lse, AttentionRows d_o, MutableAttentionRows dq, MutableAttentionRows dk,
                        MutableAttentionRows dv, std::byte* workspace, ThreadPool& pool) {
  if (args.batch == 0 || args.query_heads == 0) return;
  attention_blocking::check(args);
  const int64_t floats = attention_blocking::BackwardLayout(args).size();
  const auto function = HWY_DYNAMIC_DISPATCH(backward_task);
  const attention_blocking::BackwardOperands operands{q, k, v, o, d_o, lse, dq, dk, dv};
  pool.run(args.batch * args.kv_heads, [&](int64_t task, int worker) {
    function(args, operands, task, reinterpret_cast<float*>(workspace) + worker * floats);
  });
}

}  // namespace linnet
#endif
