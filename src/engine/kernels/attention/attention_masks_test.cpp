// Which keys a query sees: lengths, causal order, starts of packed documents, windows; and that nothing else is seen.
#include <gtest/gtest.h>
#include <cmath>
#include <random>
#include "attention_testing.h"

namespace linnet {
namespace {
using namespace attention_testing;

// Packed documents, windows and a bias by distance, alone and together with every other mask.
TEST(Attention, StartsWindowsAndBiasEqualTheDefinition) {
  const int64_t lengths[] = {1, 2, 5, 13, 16, 31, 33, 64, 90, 200}, sizes[] = {1, 8, 16, 33, 64, 128};
  for (const auto& isa : available_isas()) {
    const ForcedIsa forced(isa);
    std::mt19937 random(2);
    for (uint32_t round = 0; round < 90; ++round) {
      Case test = Case::drawn(random, round, round % 5 == 0 ? 2 : 1, lengths, sizes);
      test.args.dropout = round % 7 == 0 ? 0.3f : 0.0f;
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
  for (const auto& isa : {available_isas().front(), available_isas().back()}) {
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

// A NaN or infinity in row `location` of an operand. With the causal mask, what comes later reaches no earlier query,
// and gradients of later keys see no earlier query.
void check_poison(Operand Case::*operand, float poison, int64_t location, Precision precision) {
  Case test;
  test.args = {.batch = 1, .query_heads = 1, .kv_heads = 1, .query_length = 30, .key_length = 30};
  test.args.head_size = 12, test.args.causal = true, test.args.precision = precision;
  test.fill(8);
  Case clean = test;
  clean.run(1);
  (test.*operand)(0, location, 0, 3) = poison;
  test.run(1);
  const bool is_row = operand == &Case::q || operand == &Case::d_o;
  bool shown = false;
  for (int64_t t = 0; t < 30; ++t) {
    const bool query_may_differ = is_row ? t == location : t >= location;
    for (int64_t x = 0; x < 12; ++x) {
      if (!query_may_differ) {
        ASSERT_NEAR(test.o(0, t, 0, x), clean.o(0, t, 0, x), 1e-5) << "o " << t;
        ASSERT_NEAR(test.dq(0, t, 0, x), clean.dq(0, t, 0, x), 1e-5) << "dq " << t;
      } else if (operand != &Case::d_o) {
        shown |= !std::isfinite(test.o(0, t, 0, x));
      } else {
        shown |= !std::isfinite(test.dq(0, t, 0, x));
      }
      if (is_row && t > location) {  // these keys are behind the query
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
          for (const int64_t location : {20, 21}) {
            check_poison(operand, poison, location, precision);
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
}  // namespace
}  // namespace linnet
