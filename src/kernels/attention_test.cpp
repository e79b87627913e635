#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/isa.h"
#include "kernels/philox.h"

namespace linnet {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kCanary = 12345.5f;
using Doubles = std::vector<double>;

struct ForcedIsa {
  explicit ForcedIsa(const std::string& name) { force_isa(name); }
  ~ForcedIsa() { force_isa("auto"); }
};

// One operand [batch, length, heads, size] inside a buffer with wider rows.
struct Operand {
  Operand(int64_t batch, int64_t length, int64_t heads, int64_t size, int64_t gap)
      : length(length),
        heads(heads),
        size(size),
        row_stride(heads * size + gap),
        batch_stride(length * row_stride + gap),
        values(batch * batch_stride, kCanary) {}
  int64_t at(int64_t b, int64_t t, int64_t h, int64_t k) const {
    return b * batch_stride + t * row_stride + h * size + k;
  }
  float& operator()(int64_t b, int64_t t, int64_t h, int64_t k) { return values[at(b, t, h, k)]; }
  float operator()(int64_t b, int64_t t, int64_t h, int64_t k) const { return values[at(b, t, h, k)]; }
  AttentionRows rows() const { return {values.data(), batch_stride, row_stride}; }
  MutableAttentionRows mutable_rows() { return {values.data(), batch_stride, row_stride}; }

  int64_t length, heads, size, row_stride, batch_stride;
  std::vector<float> values;
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

  void run(int threads, bool backward = true) {
    args.key_lengths = lengths.empty() ? nullptr : lengths.data();
    args.starts = starts.empty() ? nullptr : starts.data();
    args.biased = !bias.empty(), args.distance_bias = bias.data();
    d_bias.assign(bias.size(), kCanary);
    ThreadPool pool(threads);
    with_workspace(attention_forward_workspace(args, threads), [&](std::byte* workspace) {
      attention_forward(args, q.rows(), k.rows(), v.rows(), o.mutable_rows(), lse.data(), workspace, pool);
    });
    if (!backward) return;
    with_workspace(attention_backward_workspace(args, threads), [&](std::byte* workspace) {
      attention_backward(args, q.rows(), k.rows(), v.rows(), o.rows(), lse.data(), d_o.rows(), dq.mutable_rows(),
                         dk.mutable_rows(), dv.mutable_rows(), d_bias.data(), workspace, pool);
    });
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

  template <class Body>
  void with_workspace(size_t bytes, const Body& body) {
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
      if (bf16)
        expect_near_in_norm(*got, *want, what);
      else
        expect_equal(*got, *want, what, tolerance);
    for (size_t i = 0; i < bias.size(); ++i)
      ASSERT_NEAR(d_bias[i], r.d_bias[i], (bf16 ? 5e-2 : tolerance) * (1 + std::abs(r.d_bias[i])))
          << "d_bias " << i << ": " << text();
    for (const Operand* operand : {&o, &dq, &dk, &dv})  // the gap between rows stays
      for (int64_t t = 0; t < operand->length; ++t) ASSERT_EQ((*operand)(0, t, operand->heads, 0), kCanary) << text();
  }
};

TEST(Attention, EqualsTheDefinitionForAnyShape) {
  const int64_t lengths[] = {1, 2, 5, 8, 13, 16, 31, 33, 64, 90}, sizes[] = {1, 3, 8, 16, 24, 32, 33, 64, 128};
  for (const auto& isa : available_isas()) {
    const ForcedIsa forced(isa);
    std::mt19937 random(1);
    for (uint32_t round = 0; round < 80; ++round) {
      Case test;
      const int64_t kv_heads = 1 + random() % 2, group = round % 3 == 0 ? 2 : 1;
      test.args = {.batch = 1 + int64_t(random() % 2), .query_heads = kv_heads * group, .kv_heads = kv_heads};
      test.args.query_length = lengths[random() % std::size(lengths)];
      test.args.key_length = round & 1 ? test.args.query_length : lengths[random() % std::size(lengths)];
      test.args.head_size = sizes[random() % std::size(sizes)];
      test.args.causal = round & 2;
      test.args.dropout = round & 4 ? 0.3f : 0.0f, test.args.dropout_key = 0x123456789abcdef + round;
      test.args.precision = round & 16 ? Precision::kBf16 : Precision::kF32;
      test.fill(round, round & 8);
      test.run(2);
      test.check();
      if (HasFatalFailure()) FAIL() << isa;
    }
  }
}

// Packed documents, windows and a bias by distance, alone and together with every other mask.
TEST(Attention, StartsWindowsAndBiasEqualTheDefinition) {
  const int64_t lengths[] = {1, 2, 5, 13, 16, 31, 33, 64, 90, 200}, sizes[] = {1, 8, 16, 33, 64, 128};
  for (const auto& isa : available_isas()) {
    const ForcedIsa forced(isa);
    std::mt19937 random(2);
    for (uint32_t round = 0; round < 90; ++round) {
      Case test;
      const int64_t kv_heads = 1 + random() % 2, group = round % 5 == 0 ? 2 : 1;
      test.args = {.batch = 1 + int64_t(random() % 2), .query_heads = kv_heads * group, .kv_heads = kv_heads};
      test.args.query_length = lengths[random() % std::size(lengths)];
      test.args.key_length = round & 1 ? test.args.query_length : lengths[random() % std::size(lengths)];
      test.args.head_size = sizes[random() % std::size(sizes)];
      test.args.causal = round & 2;
      test.args.dropout = round % 7 == 0 ? 0.3f : 0.0f, test.args.dropout_key = 0x123456789abcdef + round;
      if (round & 16) {  // among many keys, so that the rounding of single ones does not stand out
        test.args.precision = Precision::kBf16;
        test.args.query_length = std::max<int64_t>(13, test.args.query_length);
        test.args.key_length = std::max<int64_t>(16, test.args.key_length);
      }
      test.fill(round, round & 8);
      if (round % 3 != 1) test.pack(round);
      if (round % 3 != 0) test.add_bias(round);
      if (test.args.causal && round & 4) test.args.window = 1 + int64_t(random() % 40);
      test.run(2);
      test.check();
      if (HasFatalFailure()) FAIL() << isa << " round " << round;
    }
  }
}

TEST(Attention, StartsWindowsAndBiasOverManyBlocks) {
  for (const auto& isa : {available_isas().front(), std::string("baseline")}) {
    const ForcedIsa forced(isa);
    for (const Precision precision : {Precision::kF32, Precision::kBf16})
      for (const int64_t queries : {700, 730, 100})
        for (const int kind : {0, 1, 2}) {
          Case test;
          test.args = {.batch = 1, .query_heads = 2, .kv_heads = 1, .query_length = queries, .key_length = 730};
          test.args.head_size = 24, test.args.causal = kind < 2, test.args.precision = precision;
          test.fill(2, false, precision == Precision::kF32 ? 10 : 1);
          if (kind != 2) test.pack(5);
          if (kind != 0) test.add_bias(6);
          if (kind == 1) test.args.window = 150;
          test.run(2);
          test.check(2e-4);
          if (HasFatalFailure()) FAIL() << isa;
        }
  }
}

// Documents of a row that never see each other: each gives what it gives alone, whatever the others hold.
TEST(Attention, PackedDocumentsDoNotLeak) {
  for (const auto& isa : available_isas()) {
    const ForcedIsa forced(isa);
    for (const Precision precision : {Precision::kF32, Precision::kBf16})
      for (const bool later : {false, true}) {
        Case clean;
        clean.args = {.batch = 1, .query_heads = 2, .kv_heads = 2, .query_length = 70, .key_length = 70};
        clean.args.head_size = 16, clean.args.causal = true, clean.args.precision = precision;
        clean.fill(7);
        for (int64_t i = 0; i < 70; ++i) clean.starts.push_back(i < 37 ? 0 : 37);
        Case dirty = clean;
        for (int64_t j = later ? 37 : 0; j < (later ? 70 : 37); ++j)
          for (int64_t x = 0; x < 32; ++x)
            for (const auto operand : {&Case::q, &Case::k, &Case::v}) (dirty.*operand)(0, j, 0, x) = kNan;
        clean.run(1), dirty.run(1);
        for (int64_t t = later ? 0 : 37; t < (later ? 37 : 70); ++t)
          for (int64_t x = 0; x < 32; ++x)
            for (const auto operand : {&Case::o, &Case::dq, &Case::dk, &Case::dv})
              ASSERT_NEAR((clean.*operand)(0, t, 0, x), (dirty.*operand)(0, t, 0, x), 1e-5) << isa << " row " << t;
      }
  }
}

TEST(Attention, SeveralBlocksOfKeysAndChunksOfQueries) {
  for (const auto& isa : {available_isas().front(), std::string("baseline")}) {
    const ForcedIsa forced(isa);
    for (const bool causal : {false, true})
      for (const int64_t queries : {700, 100})
        for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
          Case test;
          test.args = {.batch = 1, .query_heads = 2, .kv_heads = 1, .query_length = queries, .key_length = 730};
          test.args.head_size = 24, test.args.causal = causal, test.args.dropout = 0.1f;
          test.args.precision = precision;
          // Large scores, so that the shift of a query moves; in bf16 their rounding alone would be large.
          test.fill(2, false, precision == Precision::kF32 ? 10 : 1);
          test.run(2);
          test.check(2e-4);
          if (HasFatalFailure()) FAIL() << isa;
        }
  }
}

// Scores near +-300, and from far below zero to far above as the keys pass.
TEST(Attention, ScoresFarFromZero) {
  for (const auto& isa : available_isas()) {
    const ForcedIsa forced(isa);
    for (const bool causal : {false, true})
      for (const float level : {300.0f, -300.0f, 0.0f}) {
        Case test;
        test.args = {.batch = 1, .query_heads = 1, .kv_heads = 1, .query_length = 40, .key_length = 300};
        test.args.head_size = 8, test.args.causal = causal, test.args.scale = 0.5f;
        test.fill(21);
        for (int64_t i = 0; i < 40; ++i) test.q(0, i, 0, 0) = 2;
        for (int64_t j = 0; j < 300; ++j) test.k(0, j, 0, 0) = level != 0 ? level : 2.0f * float(j) - 300;
        test.run(1);
        test.check(3e-4);
        if (HasFatalFailure()) FAIL() << isa << " level " << level;
      }
  }
}

// One token at a time, and a few at once, with as many keys as there are so far.
TEST(Attention, FewQueriesAgainstManyKeys) {
  for (const auto& isa : available_isas()) {
    const ForcedIsa forced(isa);
    for (const int64_t keys : {1, 3, 100, 300})
      for (const int64_t queries : {1, 4})
        for (const int64_t size : {7, 48}) {
          Case test;
          test.args = {.batch = 3, .query_heads = 4, .kv_heads = 2, .query_length = queries, .key_length = keys};
          test.args.head_size = size, test.args.causal = true;
          test.fill(9, size == 7, 5);
          test.run(2);
          test.check(5e-5);
          if (HasFatalFailure()) FAIL() << isa;
        }
  }
}

TEST(Attention, MoreQueriesThanKeysLeaveBlindQueries) {
  Case test;
  test.args = {.batch = 2, .query_heads = 2, .kv_heads = 2, .query_length = 40, .key_length = 13, .head_size = 16};
  test.args.causal = true;
  test.fill(3);
  test.run(1);
  test.check();
  for (int64_t i = 0; i < 27; ++i)
    for (int64_t t = 0; t < 16; ++t) {
      EXPECT_EQ(test.o(1, i, 1, t), 0);
      EXPECT_EQ(test.dq(1, i, 1, t), 0);
    }
}

TEST(Attention, AllKeysMaskedGivesZeros) {
  Case test;
  test.args = {.batch = 2, .query_heads = 2, .kv_heads = 1, .query_length = 3, .key_length = 20, .head_size = 8};
  test.fill(3);
  test.lengths = {0, 7};
  test.run(2);
  test.check();
}

TEST(Attention, GradientsAreTheSlopeOfTheOutput) {
  Case test;
  test.args = {.batch = 1, .query_heads = 2, .kv_heads = 1, .query_length = 4, .key_length = 6, .head_size = 5};
  test.args.causal = true, test.args.dropout = 0.2f, test.args.dropout_key = 9;
  test.fill(4);
  test.run(1);
  const auto loss = [](const Case& c) {
    const Reference r = c.reference();
    double sum = 0;
    size_t n = 0;
    for (int64_t i = 0; i < 4; ++i)
      for (int64_t h = 0; h < 2; ++h)
        for (int64_t t = 0; t < 5; ++t) sum += r.o[n++] * c.d_o(0, i, h, t);
    return sum;
  };
  const auto slope = [&](Operand Case::*operand, int64_t t, int64_t x) {
    Case up = test, down = test;
    (up.*operand)(0, t, 0, x) += 0.01f, (down.*operand)(0, t, 0, x) -= 0.01f;
    return (loss(up) - loss(down)) / (double((up.*operand)(0, t, 0, x)) - (down.*operand)(0, t, 0, x));
  };
  for (int64_t t = 0; t < 4; ++t)
    for (int64_t x = 0; x < 5; ++x) {
      EXPECT_NEAR(test.dq(0, t, 0, x), slope(&Case::q, t, x), 2e-4);
      EXPECT_NEAR(test.dk(0, t, 0, x), slope(&Case::k, t, x), 2e-4);
      EXPECT_NEAR(test.dv(0, t, 0, x), slope(&Case::v, t, x), 2e-4);
    }
}

TEST(Attention, TheNumberOfThreadsChangesNoBit) {
  for (const auto& isa : available_isas()) {
    const ForcedIsa forced(isa);
    Case test;
    test.args = {.batch = 2, .query_heads = 4, .kv_heads = 2, .query_length = 200, .key_length = 200, .head_size = 32};
    test.args.causal = true, test.args.dropout = 0.1f;
    for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
      test.args.precision = precision;
      test.fill(5, true);
      test.add_bias(3);
      test.run(1);
      for (const int threads : {2, 3}) {
        Case more = test;
        more.run(threads);
        for (const auto operand : {&Case::o, &Case::dq, &Case::dk, &Case::dv}) {
          const auto &a = (test.*operand).values, &b = (more.*operand).values;
          EXPECT_EQ(0, std::memcmp(a.data(), b.data(), a.size() * sizeof(float))) << isa << " threads " << threads;
        }
        EXPECT_EQ(test.d_bias, more.d_bias) << isa << " threads " << threads;
        EXPECT_EQ(0, std::memcmp(test.lse.data(), more.lse.data(), test.lse.size() * sizeof(float)));
      }
    }
  }
}

// q, k and v side by side, as one linear layer leaves them; their gradients likewise.
TEST(Attention, WorksInsideOneBuffer) {
  Case test;
  test.args = {.batch = 2, .query_heads = 3, .kv_heads = 3, .query_length = 17, .key_length = 17, .head_size = 16};
  test.fill(6);
  test.run(1);
  constexpr int64_t width = 48;
  std::vector<float> packed(2 * 17 * 3 * width), gradient(packed.size(), kNan);
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t t = 0; t < 17; ++t)
      for (int64_t x = 0; x < width; ++x) {
        float* row = packed.data() + (b * 17 + t) * 3 * width;
        row[x] = test.q(b, t, 0, x), row[width + x] = test.k(b, t, 0, x), row[2 * width + x] = test.v(b, t, 0, x);
      }
  const auto part = [&](int64_t i) { return AttentionRows{packed.data() + i * width, 17 * 3 * width, 3 * width}; };
  const auto out = [&](int64_t i) {
    return MutableAttentionRows{gradient.data() + i * width, 17 * 3 * width, 3 * width};
  };
  ThreadPool pool(2);
  test.with_workspace(attention_backward_workspace(test.args, 2), [&](std::byte* workspace) {
    attention_backward(test.args, part(0), part(1), part(2), test.o.rows(), test.lse.data(), test.d_o.rows(), out(0),
                       out(1), out(2), nullptr, workspace, pool);
  });
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t t = 0; t < 17; ++t)
      for (int64_t x = 0; x < width; ++x) {
        const float* row = gradient.data() + (b * 17 + t) * 3 * width;
        ASSERT_EQ(row[x], test.dq(b, t, 0, x));
        ASSERT_EQ(row[width + x], test.dk(b, t, 0, x));
        ASSERT_EQ(row[2 * width + x], test.dv(b, t, 0, x));
      }
}

// Padding may hold anything at all.
TEST(Attention, MaskedKeysDoNotLeak) {
  for (const auto& isa : available_isas()) {
    const ForcedIsa forced(isa);
    Case clean;
    clean.args = {.batch = 2, .query_heads = 2, .kv_heads = 2, .query_length = 21, .key_length = 37, .head_size = 16};
    for (const int64_t queries : {3, 21, 22}) {
      clean.args.query_length = queries;
      clean.args.precision = queries == 22 ? Precision::kBf16 : Precision::kF32;
      clean.fill(7);
      clean.lengths = {20, 5};
      Case dirty = clean;
      for (int64_t b = 0; b < 2; ++b)
        for (int64_t j = dirty.lengths[b]; j < 37; ++j)
          for (int64_t x = 0; x < 32; ++x) dirty.k(b, j, 0, x) = kNan, dirty.v(b, j, 0, x) = x % 2 ? kInf : kNan;
      clean.run(1), dirty.run(1);
      EXPECT_EQ(clean.o.values, dirty.o.values) << isa;
      EXPECT_EQ(clean.dq.values, dirty.dq.values) << isa;
      EXPECT_EQ(clean.dk.values, dirty.dk.values) << isa;
      EXPECT_EQ(clean.dv.values, dirty.dv.values) << isa;
    }
  }
}

// A NaN or infinity in row `place` of an operand. With the causal mask, what comes later reaches no earlier query, and
// gradients of later keys see no earlier query.
void check_poison(Operand Case::*operand, float poison, int64_t place, Precision precision) {
  Case test;
  test.args = {.batch = 1, .query_heads = 1, .kv_heads = 1, .query_length = 30, .key_length = 30};
  test.args.head_size = 12, test.args.causal = true, test.args.precision = precision;
  test.fill(8);
  Case clean = test;
  clean.run(1);
  (test.*operand)(0, place, 0, 3) = poison;
  test.run(1);
  const bool is_row = operand == &Case::q || operand == &Case::d_o;
  bool shown = false;
  for (int64_t t = 0; t < 30; ++t) {
    const bool query_may_differ = is_row ? t == place : t >= place;
    for (int64_t x = 0; x < 12; ++x) {
      if (!query_may_differ) {
        ASSERT_NEAR(test.o(0, t, 0, x), clean.o(0, t, 0, x), 1e-5) << "o " << t;
        ASSERT_NEAR(test.dq(0, t, 0, x), clean.dq(0, t, 0, x), 1e-5) << "dq " << t;
      } else if (operand != &Case::d_o) {
        shown |= !std::isfinite(test.o(0, t, 0, x));
      } else {
        shown |= !std::isfinite(test.dq(0, t, 0, x));
      }
      if (is_row && t > place) {  // these keys are behind the query
        ASSERT_NEAR(test.dk(0, t, 0, x), clean.dk(0, t, 0, x), 1e-5) << "dk " << t;
        ASSERT_NEAR(test.dv(0, t, 0, x), clean.dv(0, t, 0, x), 1e-5) << "dv " << t;
      }
    }
  }
  ASSERT_TRUE(shown) << "the poison did not show";
}

TEST(Attention, NanReachesWhatSeesItAndNothingElse) {
  for (const auto& isa : available_isas()) {
    const ForcedIsa forced(isa);
    for (const Precision precision : {Precision::kF32, Precision::kBf16})
      for (const auto operand : {&Case::q, &Case::k, &Case::v, &Case::d_o})
        for (const float poison : {kNan, kInf})
          for (const int64_t place : {20, 21}) {
            check_poison(operand, poison, place, precision);
            if (HasFatalFailure()) FAIL() << isa;
          }
  }
}

// Rows of d_o that are zero, as those of padding are, are left out; unless there is a NaN for them to meet.
TEST(Attention, QueriesWithoutGradientCostNothingAndHideNothing) {
  for (const auto& isa : available_isas()) {
    const ForcedIsa forced(isa);
    Case test;
    test.args = {.batch = 2, .query_heads = 2, .kv_heads = 2, .query_length = 50, .key_length = 37, .head_size = 16};
    test.fill(17, true);
    for (int64_t i = 9; i < 50; ++i)
      for (int64_t x = 0; x < 32; ++x) test.d_o(0, i, 0, x) = 0, test.d_o(1, i, 0, x) = 0;
    test.run(1);
    test.check();
    test.q(1, 40, 1, 2) = kNan, test.lengths = {37, 37};
    test.run(1);
    EXPECT_TRUE(std::isnan(test.dq(1, 40, 1, 5)) && std::isnan(test.dk(1, 3, 1, 5))) << isa;
    EXPECT_FALSE(std::isnan(test.dq(1, 40, 0, 5))) << isa;
  }
}

TEST(Attention, DropoutDropsTheAskedShareAndKeepsTheMean) {
  for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
    Case test;
    test.args = {.batch = 2, .query_heads = 2, .kv_heads = 2, .query_length = 200, .key_length = 100, .head_size = 100};
    test.args.dropout = 0.1f, test.args.dropout_key = 5, test.args.precision = precision;
    test.fill(3);
    std::fill(test.q.values.begin(), test.q.values.end(), 0.0f);  // all probabilities are 1 / 100
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t j = 0; j < 100; ++j)
        for (int64_t x = 0; x < 200; ++x) test.v(b, j, x / 100, x % 100) = x % 100 == j ? 100 : 0;
    test.run(2, false);
    double sum = 0, zeros = 0;  // o is the mask
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t i = 0; i < 200; ++i)
        for (int64_t x = 0; x < 200; ++x) sum += test.o(b, i, 0, x), zeros += test.o(b, i, 0, x) == 0;
    EXPECT_NEAR(zeros / 80000, 0.1, 0.005);  // four standard deviations
    EXPECT_NEAR(sum / 80000, 1, 0.006);
  }
}

TEST(Attention, WorkspaceIsFarFromTheScoreMatrix) {
  AttentionArgs args = {.batch = 1, .query_heads = 1, .kv_heads = 1, .query_length = 1 << 14, .key_length = 1 << 14};
  args.head_size = 64;
  for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
    args.precision = precision;
    EXPECT_LT(attention_forward_workspace(args, 1), size_t{1} << 20);
    EXPECT_LT(attention_backward_workspace(args, 1), size_t{1} << 20);
  }
}

}  // namespace
}  // namespace linnet
