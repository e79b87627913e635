// Attention row by row, in float32 or float64: the reference of the fast kernels.
#include <algorithm>
#include <cmath>
#include <limits>
#include "engine/kernels/random/philox.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/dropout/dropout.h"

namespace linnet {
namespace {
template <class T> class AttentionReference {
 public:
  explicit AttentionReference(const KernelArgs& args) : args_(args), attrs_(args.attrs<AttentionAttrs>()) {
    const Shape &q = args.in[0].shape(), &k = args.in[1].shape();
    batch_ = q[0], queries_ = q[1], keys_ = k[1], size_ = q[2] / attrs_.heads;
    const size_t fixed = args.node.op == &kAttention ? kAttentionFixed : kAttentionGradFixed;
    if (attrs_.has_lengths) lengths_ = args.in[fixed].template as<int32_t>();
    if (attrs_.has_starts) starts_ = args.in[attrs_.starts_at(fixed)].template as<int32_t>();
    if (attrs_.has_bias) {
      const TensorView& bias = args.in[attrs_.bias_at(fixed)];
      bias_ = bias.template as<T>(), bias_stride_ = bias_stride(bias.shape());
    }
    if (attrs_.dropout > 0) key_ = dropout_key(args.in.back().template as<int32_t>(), attrs_.dropout_site);
  }

  void forward() {
    T* lse = args_.out[1].as<T>();
    each_row([&](int64_t b, int64_t h, int64_t i) {
      const double log_sum = probabilities(b, h, i);
      lse[(b * attrs_.heads + h) * queries_ + i] = static_cast<T>(log_sum);
      T* o = at(args_.out[0], b, i, h);
      std::fill_n(o, size_, T(0));
      for (int64_t j = first_; j < visible_; ++j) {
        const double p = p_[j] * kept_[j];
        for (int64_t d = 0; d < size_; ++d) o[d] += static_cast<T>(p * at(args_.in[2], b, j, kv(h))[d]);
      }
    });
  }

  // With p = softmax, m = dropout mask: dv = (p m)^T do; dp = m (do v^T); ds = p (dp - sum(dp p)); dq = scale ds k; dk
  // = scale ds^T q; dbias of a distance = the sum of its ds
  void backward() {
    if (bias_) std::fill_n(args_.out[3].as<T>(), args_.out[3].elements(), T(0));
    for (int o = 0; o < 3; ++o) clear(args_.out[static_cast<size_t>(o)], o == 0 ? attrs_.heads : attrs_.kv_heads);
    std::vector<double> dp;
    each_row([&](int64_t b, int64_t h, int64_t i) {
      probabilities(b, h, i);
      const T *q = at(args_.in[0], b, i, h), *d_o = at(args_.in[5], b, i, h);
      dp.assign(static_cast<size_t>(visible_), 0);
      double sum = 0;
      for (int64_t j = first_; j < visible_; ++j) {
        const auto x = static_cast<size_t>(j);
        const T* v = at(args_.in[2], b, j, kv(h));
        T* dv = at(args_.out[2], b, j, kv(h));
        for (int64_t d = 0; d < size_; ++d) {
          dp[x] += static_cast<double>(d_o[d]) * v[d];
          dv[d] += static_cast<T>(p_[x] * kept_[x] * d_o[d]);
        }
        dp[x] *= kept_[x];
        sum += dp[x] * p_[x];
      }
      for (int64_t j = first_; j < visible_; ++j) {
        const auto x = static_cast<size_t>(j);
        const double d_score = p_[x] * (dp[x] - sum), ds = d_score * attrs_.scale;
        if (bias_) args_.out[3].as<T>()[bias_index(h, i, j)] += static_cast<T>(d_score);
        const T* k = at(args_.in[1], b, j, kv(h));
        T *dq = at(args_.out[0], b, i, h), *dk = at(args_.out[1], b, j, kv(h));
        for (int64_t d = 0; d < size_; ++d) dq[d] += static_cast<T>(ds * k[d]), dk[d] += static_cast<T>(ds * q[d]);
      }
    });
  }

 private:
  template <class Body> void each_row(Body body) {
    for (int64_t b = 0; b < batch_; ++b)
      for (int64_t h = 0; h < attrs_.heads; ++h)
        for (int64_t i = 0; i < queries_; ++i) {
          visible_ = lengths_ ? std::min<int64_t>(keys_, lengths_[b]) : keys_;
          if (attrs_.causal) visible_ = std::min(visible_, i + keys_ - queries_ + 1);
          visible_ = std::max<int64_t>(visible_, 0);
          first_ = starts_ ? starts_[b * queries_ + i] : 0;
          if (attrs_.window > 0) first_ = std::max(first_, i + keys_ - queries_ - attrs_.window + 1);
          first_ = std::clamp<int64_t>(first_, 0, visible_);
          body(b, h, i);
        }
  }

  int64_t kv(int64_t head) const { return head / (attrs_.heads / attrs_.kv_heads); }

  T* at(const TensorView& x, int64_t b, int64_t t, int64_t head) const {
    return x.as<T>() + b * x.strides[0] + t * x.strides[1] + head * size_;
  }

  int64_t bias_index(int64_t head, int64_t i, int64_t j) const {
    return head * (queries_ + keys_ - 1) + j - i + queries_ - 1;
  }

  void clear(const TensorView& x, int64_t heads) const {
    for (int64_t b = 0; b < x.shape()[0]; ++b)
      for (int64_t t = 0; t < x.shape()[1]; ++t) std::fill_n(at(x, b, t, 0), heads * size_, T(0));
  }

  // Fills p_ (probabilities of the visible keys) and kept_ (0 or the dropout scale); returns the log-sum-exp.
  double probabilities(int64_t b, int64_t h, int64_t i) {
    p_.assign(static_cast<size_t>(visible_), 0);
    kept_.assign(static_cast<size_t>(visible_), 1);
    const T* q = at(args_.in[0], b, i, h);
    double top = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t j = first_; j < visible_; ++j) {
      const T* k = at(args_.in[1], b, j, kv(h));
      double& score = p_[j];
      for (int64_t d = 0; d < size_; ++d) score += static_cast<double>(q[d]) * k[d];
      score *= attrs_.scale;
      if (bias_) score += bias_[b * bias_stride_ + bias_index(h, i, j)];
      top = std::max(top, score);
    }
    const std::span<double> seen = std::span(p_).subspan(first_);
    for (double& p : seen) sum += p = std::exp(p - top);
    for (double& p : seen) p /= sum;
    if (attrs_.dropout > 0)
      for (int64_t j = 0; j < visible_; ++j)
        kept_[j] = dropout_keeps(key_, j, static_cast<uint32_t>(i), static_cast<uint32_t>(h + attrs_.first_head),
                       static_cast<uint32_t>(b), attrs_.dropout)
                       ? dropout_scale(attrs_.dropout)
                       : 0;
    return top + std::log(sum);
  }

  const KernelArgs& args_;
  const AttentionAttrs& attrs_;
  int64_t batch_, queries_, keys_, size_, first_ = 0, visible_ = 0;
  const int32_t *lengths_ = nullptr, *starts_ = nullptr;
  const T* bias_ = nullptr;
  int64_t bias_stride_ = 0;
  uint64_t key_ = 0;
  std::vector<double> p_, kept_;
};

template <class T> void attend(const KernelArgs& args) {
  const auto& attrs = args.attrs<CachedAttentionAttrs>();
  const int64_t size = args.in[0].shape()[2] / attrs.heads, group = attrs.heads / attrs.kv_heads;
  const auto at = [](const TensorView& x, int64_t row, int64_t entry, int64_t element) {
    return x.as<T>() + row * x.strides[0] + entry * x.strides[1] + element;
  };
  std::vector<double> p, sums(static_cast<size_t>(size));
  for (int64_t i = 0; i < args.in[0].shape()[0]; ++i)
    for (int64_t head = 0; head < attrs.heads; ++head) {
      const int64_t row = args.in[kCachedRows].as<int32_t>()[i], key_head = head / group * size;
      const int64_t end = std::min<int64_t>(args.in[kCachedLengths].as<int32_t>()[i], args.in[1].shape()[1]);
      const int64_t first = attrs.has_starts ? args.in[kCachedStarts].as<int32_t>()[i] : 0;
      const T* q = at(args.in[0], i, 0, head * size);
      p.clear();
      for (int64_t j = first; j < end; ++j) {
        double score = 0;
        for (int64_t d = 0; d < size; ++d) score += static_cast<double>(q[d]) * at(args.in[1], row, j, key_head)[d];
        score *= attrs.scale;
        p.push_back(attrs.soft_cap > 0 ? attrs.soft_cap * std::tanh(score / attrs.soft_cap) : score);
      }
      const double largest = p.empty() ? 0 : *std::ranges::max_element(p);
      double total = 0;
      for (double& x : p) total += x = std::exp(x - largest);
      std::ranges::fill(sums, 0);
      for (int64_t j = first; j < end; ++j)
        for (int64_t d = 0; d < size; ++d) sums[d] += p[j - first] / total * at(args.in[2], row, j, key_head)[d];
      std::ranges::transform(sums, at(args.out[0], i, 0, head * size), [](double x) { return static_cast<T>(x); });
    }
}
}  // namespace

void attention_reference(const KernelArgs& args) {
  for_float(args.in[0].type.dtype, [&]<class T>() { AttentionReference<T>(args).forward(); });
}

void attention_grad_reference(const KernelArgs& args) {
  for_float(args.in[0].type.dtype, [&]<class T>() { AttentionReference<T>(args).backward(); });
}

void cached_attention_reference(const KernelArgs& args) {
  for_float(args.out[0].type.dtype, [&]<class T>() { attend<T>(args); });
}
}  // namespace linnet
