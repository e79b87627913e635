#include "engine/kernels/attention/attention.h"
#include <gtest/gtest.h>
#include <cstring>
#include <random>
#include "attention_testing.h"

namespace linnet {
namespace {
using namespace attention_testing;

TEST(Attention, EqualsTheDefinitionForAnyShape) {
  const int64_t lengths[] = {1, 2, 5, 8, 13, 16, 31, 33, 64, 90}, sizes[] = {1, 3, 8, 16, 24, 32, 33, 64, 128};
  for (const auto& isa : available_isas()) {
    const ForcedIsa forced(isa);
    std::mt19937 random(1);
    for (uint32_t round = 0; round < 80; ++round) {
      Case test = Case::drawn(random, round, round % 3 == 0 ? 2 : 1, lengths, sizes);
      test.args.dropout = round & 4 ? 0.3f : 0.0f;
      test.args.precision = round & 16 ? Precision::kBf16 : Precision::kF32;
      test.fill(round, round & 8);
      test.run(2);
      test.check();
      if (HasFatalFailure()) FAIL() << isa;
    }
  }
}

TEST(Attention, SeveralBlocksOfKeysAndChunksOfQueries) {
  for (const auto& isa : {available_isas().front(), available_isas().back()}) {
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
