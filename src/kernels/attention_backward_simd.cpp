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
  if (k < count) sum = hn::MulAdd(LoadPart(a + k, count - k), LoadPart(b + k, count - k), sum);
  return SumLanes(sum);
}

// Gradients of one key-value head and the query heads that use it. With p = exp(s - lse), D = sum_k do * o of a row:
//   dv = (keep p)^T do,  dp = keep (do v^T),  ds = p (dp - D),  dq = scale ds k,  dk = scale ds^T q
// where keep is the dropout mask with its scale. Blocks of keys outside, heads and blocks of queries inside.
class BackwardHead {
 public:
  BackwardHead(const AttentionArgs& args, const attention_blocking::BackwardLayout& at, int64_t sample, float* scratch)
      : args_(args),
        size_(args.head_size),
        width_(attention_blocking::round_up(args.head_size, kWidth)),
        at_(at),
        scratch_(scratch),
        dropout_(args, sample, scratch + at_.random) {}

  void start_keys(const Head& k, const Head& v, int64_t first, int64_t keys) {
    first_key_ = first, keys_ = keys;
    PackScaledRows(k.row(first), k.stride, keys, size_, args_.scale * kLog2E, scratch_ + at_.k_rows);
    PackScaledRows(v.row(first), v.stride, keys, size_, 1.0f, scratch_ + at_.v_rows);
    PackPanels(k.row(first), k.stride, keys, size_, scratch_ + at_.k);
    keys_finite_ = !args_.causal || AllFinite(scratch_ + at_.k, keys, size_);
    std::fill_n(scratch_ + at_.dk, keys * width_, 0.0f);
    std::fill_n(scratch_ + at_.dv, keys * width_, 0.0f);
  }

  // One query head against the packed keys: adds to dk and dv, writes dq (or adds, after the first block of keys).
  void attend(const Head& q, const Head& o, const Head& d_o, const float* lse, int64_t head, const MutableHead& dq) {
    const attention_blocking::Pieces blocks(args_.query_length, kQueryBlock);
    for (int64_t block = 0; block < blocks.pieces; ++block) {
      const int64_t first = blocks.begin(block), end = blocks.begin(block + 1);
      const Window window{first, end - first, first_key_, keys_, args_.causal, args_.key_length - args_.query_length};
      if (window.limit(window.queries - 1) > 0) {
        attend_block(window, q, o, d_o, lse + first, head, dq);
      } else if (first_key_ == 0) {
        for (int64_t i = first; i < end; ++i) std::fill_n(dq.row(i), size_, 0.0f);
      }
    }
  }

  void finish_keys(const MutableHead& dk, const MutableHead& dv) const {
    for (int64_t j = 0; j < keys_; ++j) {
      WriteScaled(scratch_ + at_.dk + j * width_, args_.scale, size_, false, dk.row(first_key_ + j));
      WriteScaled(scratch_ + at_.dv + j * width_, dropout_.scale, size_, false, dv.row(first_key_ + j));
    }
  }

 private:
  // `lse` is that of the window's first query.
  void attend_block(const Window& window, const Head& q, const Head& o, const Head& d_o, const float* lse, int64_t head,
                    const MutableHead& dq) {
    const int64_t first = window.first_query, queries = window.queries;
    float *p = scratch_ + at_.p, *ds = scratch_ + at_.ds, *block_dq = scratch_ + at_.dq;
    float *q_panels = scratch_ + at_.q, *do_panels = scratch_ + at_.d_o;
    PackTransposed(q.row(first), q.stride, queries, size_, scratch_ + at_.q_transposed);
    PackTransposed(d_o.row(first), d_o.stride, queries, size_, scratch_ + at_.do_transposed);
    PackPanels(q.row(first), q.stride, queries, size_, q_panels);
    PackPanels(d_o.row(first), d_o.stride, queries, size_, do_panels);
    const bool exact =
        args_.causal && !(keys_finite_ && AllFinite(q_panels, queries, size_) && AllFinite(do_panels, queries, size_));
    for (int64_t i = 0; i < queries; ++i) {
      scratch_[at_.lse + i] = lse[i] * kLog2E;
      scratch_[at_.correction + i] = Dot(d_o.row(first + i), o.row(first + i), size_);
    }

    Scores(window, size_, scratch_ + at_.k_rows, scratch_ + at_.q_transposed, p);
    Scores(window, size_, scratch_ + at_.v_rows, scratch_ + at_.do_transposed, ds);
    for (int64_t i = 0; i < queries; i += kLanes) softmax_gradient(window, i, head);
    WeighQueries(window, exact, size_, p, do_panels, scratch_ + at_.dv, width_);
    WeighQueries(window, exact, size_, ds, q_panels, scratch_ + at_.dk, width_);
    WeighKeys(window, exact, size_, ds, scratch_ + at_.k, block_dq, width_, false);
    for (int64_t i = 0; i < queries; ++i)
      WriteScaled(block_dq + i * width_, args_.scale, size_, first_key_ > 0, dq.row(first + i));
  }

  // For the kLanes queries from i: in, p = scores and ds = do v^T; out, p = the kept probabilities (not yet scaled) and
  // ds; both zero where a query does not see a key.
  HWY_INLINE void softmax_gradient(const Window& window, int64_t i, int64_t head) {
    float *p = scratch_ + at_.p, *ds = scratch_ + at_.ds;
    const V lse = hn::Load(d, scratch_ + at_.lse + i), correction = hn::Load(d, scratch_ + at_.correction + i);
    const V scale = hn::Set(d, dropout_.scale);
    ForKeys(window, i, dropout_, head, [&](int64_t j, const auto& seen, int64_t t) HWY_ATTR {
      const int64_t at = j * kScoreStride + i;
      const V probability = Exp2(hn::Sub(hn::Load(d, p + at), lse));
      V kept = probability, gradient = hn::Load(d, ds + at);
      if (dropout_.active) {
        kept = dropout_.keep(probability, t);
        gradient = dropout_.keep(hn::Mul(gradient, scale), t);
      }
      hn::Store(seen(kept), d, p + at);
      hn::Store(seen(hn::Mul(probability, hn::Sub(gradient, correction))), d, ds + at);
    });
    ClearUnseen(window, i, p);
    ClearUnseen(window, i, ds);
  }

  const AttentionArgs& args_;
  const int64_t size_, width_;
  const attention_blocking::BackwardLayout& at_;
  float* scratch_;
  const Dropout dropout_;
  int64_t first_key_ = 0, keys_ = 0;
  bool keys_finite_ = true;
};

void backward_task(const AttentionArgs& args, const attention_blocking::BackwardLayout& layout,
                   const attention_blocking::BackwardOperands& x, int64_t task, float* scratch) {
  const int64_t kv_head = task % args.kv_heads, sample = task / args.kv_heads, size = args.head_size;
  const int64_t group = args.query_heads / args.kv_heads, valid = valid_keys(args, sample);
  const Head k(x.k, sample, kv_head, size), v(x.v, sample, kv_head, size);
  const MutableHead dk(x.dk, sample, kv_head, size), dv(x.dv, sample, kv_head, size);
  BackwardHead backward(args, layout, sample, scratch);
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
  const attention_blocking::BackwardLayout layout(args);
  const auto function = HWY_DYNAMIC_DISPATCH(backward_task);
  const attention_blocking::BackwardOperands operands{q, k, v, o, d_o, lse, dq, dk, dv};
  pool.run(args.batch * args.kv_heads, [&](int64_t task, int worker) {
    function(args, layout, operands, task, reinterpret_cast<float*>(workspace) + worker * layout.size());
  });
}

}  // namespace linnet
#endif
