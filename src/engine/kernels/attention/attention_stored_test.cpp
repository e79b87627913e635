// Attention whose operands are bf16 in memory.
#include <cmath>
#include <random>
#include "attention_testing.h"

namespace linnet {
namespace {
using namespace attention_testing;

constexpr Operand Case::*kOperands[] = {
    &Case::q, &Case::k, &Case::v, &Case::o, &Case::d_o, &Case::dq, &Case::dk, &Case::dv};

// The same numbers in fp32, with o rounded between the passes where it is bf16 in memory.
Case in_fp32(Case test, int threads) {
  const bool rounds_o = test.o.in_bf16;
  for (const auto operand : kOperands) (test.*operand).in_bf16 = false;
  test.forward(threads);
  if (rounds_o) test.o.values = rounded_to_bf16(test.o.values);
  test.backward(threads);
  return test;
}

// `stored` has bit i set where operand i is bf16 in memory.
void expect_only_rounded(Case test, unsigned stored) {
  for (size_t i = 0; i < std::size(kOperands); ++i) {
    Operand& operand = test.*kOperands[i];
    operand.in_bf16 = stored >> i & 1;
    operand.values = rounded_to_bf16(operand.values);
  }
  const Case want = in_fp32(test, 1);
  test.run(2);
  ASSERT_TRUE(same_bits(test.lse, want.lse)) << test.text();
  ASSERT_TRUE(same_bits(test.d_bias, want.d_bias)) << test.text();
  for (size_t i = 0; i < std::size(kOperands); ++i) {
    const Operand &got = test.*kOperands[i], &exact = want.*kOperands[i];
    SCOPED_TRACE("operand " + std::to_string(i) + ": " + test.text());
    expect_same(got.values, got.in_bf16 ? rounded_to_bf16(exact.values) : exact.values);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(StoredAttention, InBf16OnlyWhatIsStoredIsRounded) {
  const int64_t lengths[] = {1, 2, 5, 13, 16, 31, 33, 64, 90}, sizes[] = {1, 3, 8, 16, 24, 33, 64, 128};
  for (const auto& isa : available_isas()) {
    const ForcedIsa forced(isa);
    std::mt19937 random(11);
    for (uint32_t round = 0; round < 80; ++round) {
      Case test = Case::drawn(random, round, round % 3 == 0 ? 2 : 1, lengths, sizes);
      test.args.dropout = round & 4 ? 0.3f : 0.0f;
      test.args.precision = round & 16 ? Precision::kBf16 : Precision::kF32;
      if (test.args.causal && round % 5 == 0) test.args.window = 1 + random() % 40;
      test.fill(round, round & 8);
      if (round % 7 == 0) test.pack(round);
      if (round % 6 == 0) test.add_bias(round);
      expect_only_rounded(test, round % 4 == 0 ? random() % 256 : 255);
      if (HasFatalFailure()) FAIL() << isa;
    }
  }
}

// dq is the sum over several blocks of keys and is rounded once.
TEST(StoredAttention, SeveralBlocksOfKeysAreAddedUpBeforeTheRounding) {
  for (const auto& isa : {available_isas().front(), available_isas().back()}) {
    const ForcedIsa forced(isa);
    for (const bool causal : {false, true})
      for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
        Case test;
        test.args = {.batch = 2, .query_heads = 4, .kv_heads = 2, .query_length = 300, .key_length = 530};
        test.args.head_size = 24, test.args.causal = causal, test.args.dropout = 0.1f;
        test.args.precision = precision;
        test.fill(2);
        test.lengths = {400, 200};
        expect_only_rounded(test, 255);
        if (HasFatalFailure()) FAIL() << isa;
      }
  }
}

TEST(StoredAttention, IsNearTheDefinition) {
  for (const auto& isa : available_isas()) {
    const ForcedIsa forced(isa);
    for (const bool causal : {false, true}) {
      Case test;
      test.args = {.batch = 2, .query_heads = 4, .kv_heads = 2, .query_length = 70, .key_length = 290};
      test.args.head_size = 64, test.args.causal = causal, test.args.precision = Precision::kBf16;
      test.fill(3);
      for (const auto operand : kOperands) {
        (test.*operand).in_bf16 = true;
        (test.*operand).values = rounded_to_bf16((test.*operand).values);
      }
      test.run(2);
      test.check();
      if (HasFatalFailure()) FAIL() << isa;
    }
  }
}

// A NaN in a value reaches the queries that see its key, and none before it.
TEST(StoredAttention, NanAndInfinityReachThoseWhoSeeThem) {
  for (const auto& isa : available_isas()) {
    const ForcedIsa forced(isa);
    for (const float bad : {kNan, kInf})
      for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
        Case test;
        test.args = {.batch = 1, .query_heads = 1, .kv_heads = 1, .query_length = 50, .key_length = 50};
        test.args.head_size = 16, test.args.causal = true, test.args.precision = precision;
        test.fill(4);
        test.v(0, 20, 0, 3) = bad;
        expect_only_rounded(test, 255);
        for (const auto operand : kOperands) (test.*operand).in_bf16 = true;
        test.run(1);
        for (int64_t i = 0; i < 50; ++i) EXPECT_EQ(std::isfinite(test.o(0, i, 0, 3)), i < 20) << isa << " query " << i;
      }
  }
}
}  // namespace
}  // namespace linnet
