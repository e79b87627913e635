// Attention over any shape and mask beside its definition in double: what the tests of attention's kernels share.
#pragma once
#include <gtest/gtest.h>
#include <cmath>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <vector>
#include "engine/kernels/attention/attention.h"
#include "engine/kernels/random/philox.h"
#include "kernel_testing.h"

namespace linnet::attention_testing {
constexpr float kCanary = 12352;  // exact in bf16
using Doubles = std::vector<double>;

// One operand [batch, length, heads, size] inside a buffer with wider rows. With in_bf16, what the kernels see of it is
// bf16.
struct Operand {
  Operand(int64_t batch, int64_t length, int64_t heads, int64_t size, int64_t gap)
      : length(length), heads(heads), size(size), row_stride(heads * size + gap),
        batch_stride(length * row_stride + gap), values(batch * batch_stride, kCanary) {}
  int64_t at(int64_t b, int64_t t, int64_t h, int64_t k) const {
    return b * batch_stride + t * row_stride + h * size + k;
  }
  float& operator()(int64_t b, int64_t t, int64_t h, int64_t k) { return values[at(b, t, h, k)]; }
  float operator()(int64_t b, int64_t t, int64_t h, int64_t k) const { return values[at(b, t, h, k)]; }
  AttentionRows rows() {
    const MutableAttentionRows rows = mutable_rows();
    return {rows.data, rows.batch_stride, rows.row_stride};
  }
  MutableAttentionRows mutable_rows() {
    if (in_bf16) bf16 = to_bf16(values);
    return {in_bf16 ? MutableStoredFloats(bf16.data()) : values.data(), batch_stride, row_stride};
  }
  void read_back() {
    if (in_bf16) values = to_floats(bf16);
  }

  int64_t length, heads, size, row_stride, batch_stride;
  std::vector<float> values;
  bool in_bf16 = false;
  std::vector<Bfloat16> bf16;
};

// Attention and its gradients by the definition, in double.
struct Reference {
  Doubles d_bias;
  Doubles o, lse, dq, dk, dv;  // [batch, length, heads, size], lse [batch, heads, length]
};

struct Case {
  AttentionArgs args;
  std::vector<int32_t> lengths, starts;
  std::vector<float> bias, d_bias;
  Operand q{0, 0, 0, 0, 0}, k = q, v = q, d_o = q, o = q, dq = q, dk = q, dv = q;
  std::vector<float> lse;

  std::string text() const {
    const auto& a = args;
    return "batch " + std::to_string(a.batch) + " heads " + std::to_string(a.query_heads) + "/" +
           std::to_string(a.kv_heads) + " lengths " + std::to_string(a.query_length) + "," +
           std::to_string(a.key_length) + " size " + std::to_string(a.head_size) + (a.causal ? " causal" : "") +
           (lengths.empty() ? "" : " padded") + (starts.empty() ? "" : " packed") + (bias.empty() ? "" : " biased") +
           (a.window > 0 ? " window " + std::to_string(a.window) : "") + (a.dropout > 0 ? " dropout " : " ") +
           precision_name(a.precision);
  }

  // Sizes drawn from those given; in every second round there are as many keys as queries.
  static Case drawn(std::mt19937& random, uint32_t round, int64_t group, std::span<const int64_t> lengths,
      std::span<const int64_t> sizes) {
    Case test;
    const int64_t kv_heads = 1 + random() % 2;
    test.args = {.batch = 1 + int64_t(random() % 2), .query_heads = kv_heads * group, .kv_heads = kv_heads};
    test.args.query_length = lengths[random() % lengths.size()];
    test.args.key_length = round & 1 ? test.args.query_length : lengths[random() % lengths.size()];
    test.args.head_size = sizes[random() % sizes.size()];
    test.args.causal = round & 2;
    test.args.dropout_key = 0x123456789abcdef + round;
    return test;
  }

  void fill(uint32_t seed, bool padded = false, float spread = 1) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    if (args.scale == 1) args.scale = 1 / std::sqrt(static_cast<float>(args.head_size));
    q = o = d_o = dq = Operand(args.batch, args.query_length, args.query_heads, args.head_size, 3);
    k = v = dk = dv = Operand(args.batch, args.key_length, args.kv_heads, args.head_size, 5);
    for (Operand* operand : {&q, &k, &v, &d_o})
      for (float& x : operand->values) x = normal(random) * (operand == &q ? spread : 1);
    lengths.clear();
    if (padded)
      for (int64_t b = 0; b < args.batch; ++b)
        lengths.push_back(static_cast<int32_t>(random() % (args.key_length + 1)));
    lse.assign(args.batch * args.query_heads * args.query_length, kCanary);
  }

  void run(int threads, bool with_backward = true) {
    forward(threads);
    if (with_backward) backward(threads);
  }

  void forward(int threads) {
    args.key_lengths = lengths.empty() ? nullptr : lengths.data();
    args.starts = starts.empty() ? nullptr : starts.data();
    args.biased = !bias.empty(), args.distance_bias = bias.data();
    d_bias.assign(bias.size(), kCanary);
    ThreadPool pool(threads);
    with_workspace(attention_forward_workspace(args, threads), [&](std::byte* workspace) {
      attention_forward(args, q.rows(), k.rows(), v.rows(), o.mutable_rows(), lse.data(), workspace, pool);
    });
    o.read_back();
  }

  void backward(int threads) {
    args.dq_in_bf16 = dq.in_bf16;
    ThreadPool pool(threads);
    with_workspace(attention_backward_workspace(args, threads), [&](std::byte* workspace) {
      attention_backward(args, q.rows(), k.rows(), v.rows(), o.rows(), lse.data(), d_o.rows(), dq.mutable_rows(),
          dk.mutable_rows(), dv.mutable_rows(), d_bias.data(), workspace, pool);
    });
    for (Operand* operand : {&dq, &dk, &dv}) operand->read_back();
  }

  // Documents of random lengths one after another; a bias for every distance.
  void pack(uint32_t seed) {
    std::mt19937 random(seed);
    const int64_t longest = std::max<int64_t>(2, args.query_length / 2);
    for (int64_t b = 0; b < args.batch; ++b)
      for (int64_t i = 0, left = 0, start = 0; i < args.query_length; ++i, --left) {
        if (left == 0) left = 1 + int64_t(random() % longest), start = i;
        starts.push_back(static_cast<int32_t>(start));
      }
  }
  void add_bias(uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    bias.resize(args.query_heads * (args.query_length + args.key_length - 1));
    for (float& x : bias) x = normal(random);
  }

  template <class Body> void with_workspace(size_t bytes, const Body& body) {
    const size_t floats = bytes / sizeof(float);
    std::vector<float> memory(floats + 32, kCanary);
    auto* workspace = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
    std::fill(workspace, workspace + floats, kNan);  // whatever it holds must not matter
    body(reinterpret_cast<std::byte*>(workspace));
    for (const float* p = workspace + floats; p < memory.data() + memory.size(); ++p)
      ASSERT_EQ(*p, kCanary) << "past the workspace: " << text();
  }

  Reference reference() const {
    const auto& a = args;
    Reference r;
    r.o.resize(a.batch * a.query_length * a.query_heads * a.head_size);
    r.dq = r.o;
    r.dk.resize(a.batch * a.key_length * a.kv_heads * a.head_size);
    r.dv = r.dk;
    r.d_bias.resize(bias.size());
    for (int64_t b = 0; b < a.batch; ++b)
      for (int64_t h = 0; h < a.query_heads; ++h)
        for (int64_t i = 0; i < a.query_length; ++i) reference_row(b, h, i, r);
    return r;
  }

  void reference_row(int64_t b, int64_t h, int64_t i, Reference& r) const {
    const auto& a = args;
    const int64_t kvh = h / (a.query_heads / a.kv_heads), size = a.head_size;
    int64_t seen = lengths.empty() ? a.key_length : lengths[b];
    if (a.causal) seen = std::min(seen, i + a.key_length - a.query_length + 1);
    seen = std::max<int64_t>(seen, 0);
    int64_t from = starts.empty() ? 0 : starts[b * a.query_length + i];
    if (a.window > 0) from = std::max(from, i + a.key_length - a.query_length - a.window + 1);
    from = std::clamp<int64_t>(from, 0, seen);
    Doubles p(seen), keep(seen, 1), dp(seen);
    double maximum = -kInf, sum = 0, correction = 0;
    const int64_t distance = h * (a.query_length + a.key_length - 1) + a.query_length - 1 - i;
    for (int64_t j = from; j < seen; ++j) {
      for (int64_t t = 0; t < size; ++t) p[j] += double(q(b, i, h, t)) * k(b, j, kvh, t) * a.scale;
      if (!bias.empty()) p[j] += bias[distance + j];
      maximum = std::max(maximum, p[j]);
    }
    for (int64_t j = from; j < seen; ++j) sum += std::exp(p[j] - maximum);
    r.lse.push_back(seen > from ? maximum + std::log(sum) : -kInf);
    const int64_t row = ((b * a.query_length + i) * a.query_heads + h) * size;
    for (int64_t j = from; j < seen; ++j) {
      p[j] = std::exp(p[j] - maximum) / sum;
      if (a.dropout > 0)
        keep[j] = dropout_keeps(a.dropout_key, j, i, h, b, a.dropout) ? double(dropout_scale(a.dropout)) : 0.0;
      for (int64_t t = 0; t < size; ++t) {
        r.o[row + t] += keep[j] * p[j] * v(b, j, kvh, t);
        dp[j] += keep[j] * d_o(b, i, h, t) * v(b, j, kvh, t);
      }
      correction += p[j] * dp[j];
    }
    for (int64_t j = from; j < seen; ++j) {
      if (!bias.empty()) r.d_bias[distance + j] += p[j] * (dp[j] - correction);
      const int64_t key = ((b * a.key_length + j) * a.kv_heads + kvh) * size;
      const double ds = p[j] * (dp[j] - correction) * a.scale;
      for (int64_t t = 0; t < size; ++t) {
        r.dq[row + t] += ds * k(b, j, kvh, t);
        r.dk[key + t] += ds * q(b, i, h, t);
        r.dv[key + t] += keep[j] * p[j] * d_o(b, i, h, t);
      }
    }
  }

  void expect_equal(const Operand& got, const Doubles& want, const char* what, double tolerance) const {
    size_t n = 0;
    for (int64_t b = 0; b < args.batch; ++b)
      for (int64_t t = 0; t < got.length; ++t)
        for (int64_t h = 0; h < got.heads; ++h)
          for (int64_t x = 0; x < got.size; ++x, ++n)
            ASSERT_NEAR(got(b, t, h, x), want[n], tolerance * (1 + std::abs(want[n])))
                << what << " at sample " << b << " row " << t << " head " << h << ": " << text();
  }

  // bf16: operands have eight bits, and where p (dp - D) cancels what remains is their rounding.
  void expect_near_in_norm(const Operand& got, const Doubles& want, const char* what) const {
    size_t n = 0;
    double error = 0, square = 0;
    for (int64_t b = 0; b < args.batch; ++b)
      for (int64_t t = 0; t < got.length; ++t)
        for (int64_t h = 0; h < got.heads; ++h)
          for (int64_t x = 0; x < got.size; ++x, ++n)
            error += std::pow(got(b, t, h, x) - want[n], 2), square += want[n] * want[n];
    const double count = static_cast<double>(n);
    ASSERT_LE(std::sqrt(error / count), 1e-2 * (0.5 + std::sqrt(square / count))) << what << ": " << text();
  }

  void check(double tolerance = 2e-5) const {
    const Reference r = reference();
    size_t n = 0;
    const bool bf16 = args.precision == Precision::kBf16;
    for (int64_t b = 0; b < args.batch; ++b)
      for (int64_t h = 0; h < args.query_heads; ++h)
        for (int64_t i = 0; i < args.query_length; ++i, ++n) {
          if (std::isinf(r.lse[n])) {
            ASSERT_EQ(lse[n], -kInf) << text();
          } else {
            ASSERT_NEAR(lse[n], r.lse[n], bf16 ? 3e-2 : tolerance) << text();
          }
        }
    const std::tuple<const Operand*, const Doubles*, const char*> results[] = {
        {&o, &r.o, "o"}, {&dq, &r.dq, "dq"}, {&dk, &r.dk, "dk"}, {&dv, &r.dv, "dv"}};
    for (const auto& [got, want, what] : results)
      if (bf16) expect_near_in_norm(*got, *want, what);
      else expect_equal(*got, *want, what, tolerance);
    for (size_t i = 0; i < bias.size(); ++i)
      ASSERT_NEAR(d_bias[i], r.d_bias[i], (bf16 ? 5e-2 : tolerance) * (1 + std::abs(r.d_bias[i])))
          << "d_bias " << i << ": " << text();
    for (const Operand* operand : {&o, &dq, &dk, &dv})  // the gap between rows stays
      for (int64_t t = 0; t < operand->length; ++t) ASSERT_EQ((*operand)(0, t, operand->heads, 0), kCanary) << text();
  }
};
}  // namespace linnet::attention_testing
