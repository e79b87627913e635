#include "engine/kernels/gemm/gemm.h"
#include <gtest/gtest.h>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>
#include "kernel_testing.h"

namespace linnet {
namespace {
constexpr float kCanary = 12345.5f;

double slope(GemmActivation f, double x) {
  const double h = 1e-5;
  if (f == GemmActivation::kRelu) return x > 0 ? 1 : 0;
  return (gemm_activation(f, x + h) - gemm_activation(f, x - h)) / (2 * h);
}

// A product with its operands: matrices with rows longer than needed, so that strides are tested too.
struct Case {
  int64_t batch = 1, m, n, k;
  bool trans_a = false, trans_b = false, accumulate = false, bias = false, relu = false, shared_b = false;
  Precision precision = Precision::kF32;
  bool residual = false, before = false;
  GemmActivation activation = GemmActivation::kNone, derivative = GemmActivation::kNone;

  std::vector<float> a, b, c, bias_values, residual_values, before_values, aux_values;
  GemmArgs args;

  std::string text() const {
    return "batch " + std::to_string(batch) + " m " + std::to_string(m) + " n " + std::to_string(n) + " k " +
           std::to_string(k) + (trans_a ? " trans_a" : "") + (trans_b ? " trans_b" : "") +
           (accumulate ? " accumulate" : "") + (bias ? " bias" : "") + (relu ? " relu" : "") +
           (shared_b ? " shared_b" : "") + (residual ? " residual" : "") + (before ? " before" : "") + " activation " +
           std::to_string(static_cast<int>(activation)) + " derivative " +
           std::to_string(static_cast<int>(derivative)) + " " + precision_name(precision);
  }

  void fill(uint32_t seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(-1, 1);
    const auto values = [&](int64_t count) {
      std::vector<float> v(count);
      for (float& x : v) x = uniform(random);
      return v;
    };
    args = {.batch = batch, .m = m, .n = n, .k = k};
    args.lda = (trans_a ? m : k) + 3, args.ldb = (trans_b ? k : n) + 1, args.ldc = n + 2;
    args.a_batch = (trans_a ? k : m) * args.lda;
    args.b_batch = shared_b ? 0 : (trans_b ? n : k) * args.ldb;
    args.c_batch = m * args.ldc;
    a = values(batch * args.a_batch), c = values(batch * args.c_batch), bias_values = values(n);
    b = values((trans_b ? n : k) * args.ldb * (shared_b ? 1 : batch));
    args.trans_a = trans_a, args.trans_b = trans_b, args.accumulate = accumulate;
    args.activation = relu ? GemmActivation::kRelu : activation, args.derivative = derivative;
    args.derivative_scale = seed % 2 ? 1.25f : 1.0f;
    residual_values = values(batch * args.c_batch), aux_values = values(batch * args.c_batch);
    before_values.assign(c.size(), kCanary);
    args.residual = residual ? residual_values.data() : nullptr;
    args.aux = derivative == GemmActivation::kNone ? nullptr : aux_values.data();
    args.pre_activation = before ? before_values.data() : nullptr;
    args.precision = precision, args.a = a.data(), args.b = b.data(), args.bias = bias ? bias_values.data() : nullptr;
  }

  std::vector<float> run(int threads) {
    ThreadPool pool(threads);
    const size_t floats = gemm_workspace(batch, m, n, k, threads) / sizeof(float);
    std::vector<float> memory(floats + 32, kCanary);
    auto* workspace = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
    std::fill(workspace, workspace + floats, kNan);  // whatever it holds must not matter
    std::vector<float> out = c;
    args.c = out.data();
    gemm(args, reinterpret_cast<std::byte*>(workspace), pool);
    for (const float* p = workspace + floats; p < memory.data() + memory.size(); ++p)
      EXPECT_EQ(*p, kCanary) << "past the workspace: " << text();
    return out;
  }

  // In double, with the bound that any order of summation keeps. In bf16, of the rounded operands; small products may
  // be computed in either precision.
  void check(const std::vector<float>& out) const {
    const bool bf16 = precision == Precision::kBf16 && gemm_has_bf16(), packed = m > 8 && n > 16;
    const auto operand = [&](float x) -> double { return bf16 && packed ? round_to_bf16(x) : x; };
    const double tolerance = bf16 && !packed ? 0x1p-7 : 4e-7;
    for (int64_t i = 0; i < batch; ++i)
      for (int64_t row = 0; row < m; ++row)
        for (int64_t j = 0; j < args.ldc; ++j) {
          const int64_t at = i * args.c_batch + row * args.ldc + j;
          if (j >= n) {
            ASSERT_EQ(out[at], c[at]) << "outside of C: " << text();
            continue;
          }
          double sum = accumulate ? c[at] : residual ? residual_values[at] : 0, size = std::abs(sum) + 1;
          for (int64_t t = 0; t < k; ++t) {
            const double x = operand(a[i * args.a_batch + (trans_a ? t * args.lda + row : row * args.lda + t)]);
            const double y = operand(b[i * args.b_batch + (trans_b ? j * args.ldb + t : t * args.ldb + j)]);
            sum += x * y, size += std::abs(x * y);
          }
          if (bias) sum += bias_values[j];
          if (before) {
            ASSERT_NEAR(before_values[at], sum, size * tolerance) << text();
          }
          sum = gemm_activation(args.activation, sum);
          if (args.aux) sum *= args.derivative_scale * slope(derivative, aux_values[at]);
          ASSERT_NEAR(out[at], sum, size * tolerance) << text() << " at " << i << "," << row << "," << j;
        }
  }
};

constexpr Precision kPrecisions[] = {Precision::kF32, Precision::kBf16};

TEST(Gemm, EqualsTheDefinitionForAnyShape) {
  const int64_t sizes[] = {1, 2, 3, 7, 8, 9, 13, 16, 17, 31, 32, 33, 47, 64, 65, 97};
  for (const auto& isa : available_isas()) {
    const ForcedIsa forced(isa);
    const uint32_t rounds = gemm_has_bf16() ? 320 : 160;  // the second half in bf16
    std::mt19937 random(7);
    const auto pick = [&] { return sizes[random() % std::size(sizes)]; };
    for (uint32_t round = 0; round < rounds; ++round) {
      Case test{.batch = round % 5 == 0 ? 3 : 1, .m = pick(), .n = pick(), .k = pick()};
      test.trans_a = round & 1, test.trans_b = round & 2, test.accumulate = round & 4, test.bias = round & 8;
      test.relu = round & 16, test.shared_b = round % 10 == 0;
      test.precision = kPrecisions[round / 160];
      test.fill(round);
      const auto out = test.run(2);
      test.check(out);
      if (HasFatalFailure()) FAIL() << isa;
    }
  }
}

class GemmIn : public testing::TestWithParam<Precision> {};
INSTANTIATE_TEST_SUITE_P(
    Precision, GemmIn, testing::ValuesIn(kPrecisions), [](const auto& info) { return precision_name(info.param); });

TEST(Gemm, EveryEpilogueInEveryWayOfComputing) {
  constexpr GemmActivation kNone = GemmActivation::kNone,
                           kAll[] = {kNone, GemmActivation::kRelu, GemmActivation::kGelu, GemmActivation::kGeluTanh};
  std::vector<Case> shapes = {{.m = 33, .n = 75, .k = 70}, {.m = 20, .n = 70, .k = 1600, .trans_a = true},
      {.m = 3, .n = 75, .k = 70}, {.m = 6, .n = 75, .k = 70, .trans_b = true}, {.m = 33, .n = 9, .k = 70},
      {.m = 5, .n = 9, .k = 0}, {.batch = 3, .m = 17, .n = 40, .k = 20}};
  for (const auto& isa : available_isas()) {
    const ForcedIsa forced(isa);
    for (Case test : shapes)
      for (const bool bf16 : {false, true})
        for (const GemmActivation f : kAll)
          for (const bool derivative : {false, true}) {
            if (bf16 && !gemm_has_bf16()) continue;
            test.precision = bf16 ? Precision::kBf16 : Precision::kF32;
            test.bias = true, test.residual = !derivative;
            test.activation = derivative ? kNone : f, test.derivative = derivative ? f : kNone;
            test.before = test.activation > GemmActivation::kRelu;
            test.fill(8);
            test.check(test.run(2));
            if (HasFatalFailure()) FAIL() << isa;
          }
  }
}

// In float, one multiply-add after the other: block by block along k.
TEST(Gemm, SumsRunAlongKInTheOrderOfTheShape) {
  struct Shape {
    int64_t m, k, block;
  };
  for (const auto& isa : available_isas()) {
    if (!isa.starts_with("avx")) continue;  // the others have no fused multiply-add
    const ForcedIsa forced(isa);
    for (const auto& [m, k, block] :
        {Shape{95, 288, 288}, Shape{95, 300, 300}, Shape{95, 768, 768}, Shape{20, 1000, 512}})
      for (const bool trans_a : {false, true})
        for (const bool accumulate : {false, true}) {
          Case test{.m = m, .n = 40, .k = k, .trans_a = trans_a, .accumulate = accumulate, .bias = true};
          test.fill(5);
          const auto out = test.run(2);
          for (int64_t row = 0; row < test.m; ++row)
            for (int64_t j = 0; j < test.n; ++j) {
              const int64_t at = row * test.args.ldc + j;
              float total = test.c[at];
              for (int64_t begin = 0; begin < k; begin += block) {
                float sum = 0;
                for (int64_t t = begin; t < std::min(k, begin + block); ++t)
                  sum = std::fma(test.a[trans_a ? t * test.args.lda + row : row * test.args.lda + t],
                      test.b[t * test.args.ldb + j], sum);
                total = begin > 0 || accumulate ? sum + total : sum;
              }
              ASSERT_EQ(out[at], total + test.bias_values[j]) << isa << " " << test.text() << " at " << row << "," << j;
            }
        }
  }
}

// As the planner places it when nobody else reads it.
TEST(Gemm, TheResidualMayBeTheResult) {
  for (const int64_t m : {3, 40}) {
    Case test{.m = m, .n = 50, .k = 1700, .residual = true};
    test.fill(9);
    const auto apart = test.run(2);
    test.c = test.residual_values;
    ThreadPool pool(2);
    std::vector<float> workspace(gemm_workspace(1, m, 50, 1700, 2) / sizeof(float) + 16), out = test.c;
    test.args.c = out.data(), test.args.residual = out.data();
    gemm(test.args, reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(workspace.data()) + 63) / 64 * 64), pool);
    for (int64_t row = 0; row < m; ++row)
      for (int64_t j = 0; j < 50; ++j) EXPECT_EQ(out[row * test.args.ldc + j], apart[row * test.args.ldc + j]);
  }
}

TEST_P(GemmIn, LargeShapesInSeveralBlocks) {
  for (const auto& isa : {available_isas().front(), available_isas().back()}) {
    const ForcedIsa forced(isa);
    if (GetParam() == Precision::kBf16 && !gemm_has_bf16()) continue;
    std::vector<Case> cases = {
        {.m = 9, .n = 3, .k = 2000, .trans_a = true},
        {.m = 300, .n = 70, .k = 800, .accumulate = true, .bias = true, .relu = true},
        {.m = 64, .n = 64, .k = 1553, .trans_a = true, .accumulate = true},
        {.m = 30, .n = 10, .k = 110000},  // more than one block along k
        {.m = 30, .n = 40, .k = 3101, .trans_a = true, .trans_b = true},
        {.m = 9, .n = 17, .k = 210001},
        {.m = 10, .n = 4500, .k = 780, .trans_b = true, .bias = true},  // and along n
        {.m = 700, .n = 11, .k = 300, .trans_b = true, .bias = true, .relu = true},
        {.batch = 2, .m = 700, .n = 3, .k = 131, .accumulate = true, .bias = true},
        {.batch = 3, .m = 5, .n = 70, .k = 131, .trans_a = true, .trans_b = true},
        {.m = 3, .n = 2, .k = 100000, .trans_a = true},
        {.m = 2, .n = 700, .k = 300, .trans_b = true, .bias = true},
        {.batch = 2, .m = 500, .n = 40, .k = 40, .trans_b = true},
        {.batch = 4, .m = 20, .n = 260, .k = 260},
    };
    if (isa == available_isas().back()) cases.resize(3);
    for (auto& test : cases) {
      test.precision = GetParam();
      test.fill(3);
      test.check(test.run(1));
      if (HasFatalFailure()) FAIL() << isa;
    }
  }
}

TEST_P(GemmIn, TheNumberOfThreadsChangesNoBit) {
  for (const auto& isa : available_isas()) {
    const ForcedIsa forced(isa);
    std::vector<Case> cases = {
        {.m = 150, .n = 100, .k = 1000, .trans_b = true, .bias = true, .relu = true},
        {.m = 200, .n = 300, .k = 40, .trans_a = true, .accumulate = true},
        {.m = 5, .n = 400, .k = 333, .trans_a = true, .trans_b = true},
        {.m = 8, .n = 400, .k = 333},
        {.m = 400, .n = 8, .k = 333},
        {.m = 20, .n = 600, .k = 333},
        {.batch = 6, .m = 33, .n = 30, .k = 65},
    };
    for (auto& test : cases) {
      test.precision = GetParam();
      test.fill(4);
      const auto one = test.run(1);
      for (const int threads : {2, 3}) {
        const auto more = test.run(threads);
        EXPECT_EQ(0, std::memcmp(one.data(), more.data(), one.size() * sizeof(float))) << isa << " " << test.text();
      }
    }
  }
}

// Each row is computed apart from the others: in a product of m rows it has the bits that it has by itself, which are
// those of a product with few rows.
TEST_P(GemmIn, IndependentRowsHaveTheSameBitsForAnyNumberOfRows) {
  constexpr int64_t kMostRows = 33;
  for (const auto& isa : available_isas()) {
    const ForcedIsa forced(isa);
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{75, 70}, {9, 200}, {300, 1601}})
      for (const bool trans_b : {false, true}) {
        Case all{.m = kMostRows, .n = n, .k = k, .trans_b = trans_b, .bias = true};
        all.precision = GetParam(), all.residual = n == 75;
        all.activation = n == 300 ? GemmActivation::kGelu : GemmActivation::kNone;
        all.fill(12);
        std::vector<std::vector<float>> alone;
        for (int64_t row = 0; row < kMostRows; ++row) {
          Case one = all;
          one.m = one.args.m = 1;
          one.args.a = all.a.data() + row * all.args.lda, one.args.b = all.b.data();
          one.args.bias = all.bias_values.data();
          if (all.residual) one.args.residual = all.residual_values.data() + row * all.args.ldc;
          alone.push_back(one.run(1));
        }
        for (const int64_t m : {1, 3, 8, 9, 16, 33}) {
          Case some = all;
          some.m = some.args.m = m;
          some.args.a = all.a.data(), some.args.b = all.b.data(), some.args.bias = all.bias_values.data();
          if (all.residual) some.args.residual = all.residual_values.data();
          some.args.independent_rows = true;
          const auto out = some.run(2);
          for (int64_t row = 0; row < m; ++row)
            ASSERT_EQ(0, std::memcmp(out.data() + row * all.args.ldc, alone[static_cast<size_t>(row)].data(),
                             static_cast<size_t>(n) * sizeof(float)))
                << isa << " row " << row << " of " << some.text();
        }
      }
  }
}

// In fp32 with more than 8 rows, each has the same bits for any number of them, so that a text may be computed in any
// parts.
TEST(Gemm, ManyRowsHaveTheSameBitsForAnyNumberOfThem) {
  for (const auto& isa : available_isas()) {
    const ForcedIsa forced(isa);
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{75, 70}, {9, 200}, {40, 1601}, {300, 33}}) {
      Case all{.m = 270, .n = n, .k = k, .trans_b = true, .bias = true};
      all.residual = n == 75;
      all.activation = n == 300 ? GemmActivation::kGelu : GemmActivation::kNone;
      all.fill(12);
      const auto whole = all.run(2);
      for (const int64_t m : {9, 16, 48, 200}) {
        Case some = all;
        const int64_t first = (270 - m) / 2;
        some.m = some.args.m = m;
        some.args.a = all.a.data() + first * all.args.lda, some.args.b = all.b.data();
        some.args.bias = all.bias_values.data();
        if (all.residual) some.args.residual = all.residual_values.data() + first * all.args.ldc;
        const auto out = some.run(2);
        for (int64_t row = 0; row < m; ++row)
          ASSERT_EQ(0, std::memcmp(out.data() + row * all.args.ldc, whole.data() + (first + row) * all.args.ldc,
                           static_cast<size_t>(n) * sizeof(float)))
              << isa << " row " << row << " of " << some.text();
      }
    }
  }
}

TEST(Gemm, EmptySumsAndEmptyMatrices) {
  Case test{.m = 3, .n = 4, .k = 0, .bias = true, .relu = true};
  test.fill(1);
  test.check(test.run(2));
  Case accumulated{.m = 3, .n = 4, .k = 0, .accumulate = true};
  accumulated.fill(1);
  accumulated.check(accumulated.run(1));
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{0, 4}, {4, 0}, {0, 0}}) {
    Case empty{.m = m, .n = n, .k = 5};
    empty.fill(1);
    EXPECT_EQ(empty.run(2), empty.c);
  }
}

// A diverging model must show: a NaN or infinity in an operand reaches the rows or columns that it belongs to, survives
// ReLU, and touches nothing else.
TEST_P(GemmIn, NanAndInfinityComeOut) {
  for (const auto& isa : available_isas()) {
    const ForcedIsa forced(isa);
    for (const int64_t m : {4, 40})
      for (const bool trans_b : {false, true}) {
        Case test{.m = m, .n = 45, .k = 37, .trans_b = trans_b, .bias = true, .relu = true};
        test.precision = GetParam();
        test.fill(5);
        test.a[2 * test.args.lda + 30] = kNan;
        test.b[trans_b ? 44 * test.args.ldb + 5 : 5 * test.args.ldb + 44] = kInf;
        const auto out = test.run(2);
        for (int64_t row = 0; row < m; ++row)
          for (int64_t j = 0; j < 45; ++j) {
            const float x = out[row * test.args.ldc + j];
            if (row == 2) {
              EXPECT_TRUE(std::isnan(x)) << isa;
            } else if (j == 44) {
              EXPECT_EQ(x, test.a[row * test.args.lda + 5] > 0 ? kInf : 0.0f) << isa;
            } else {
              EXPECT_TRUE(std::isfinite(x)) << isa << " m " << m << " at " << row << "," << j;
            }
          }
      }
  }
}

TEST(Gemm, Bf16RoundsToNearestEvenAndKeepsWhatIsNotANumber) {
  EXPECT_EQ(round_to_bf16(1.00390625f), 1.0f);          // 1 + 2^-8, half way: to even
  EXPECT_EQ(round_to_bf16(1.01171875f), 1.015625f);     // 1 + 3 * 2^-8: to even
  EXPECT_EQ(round_to_bf16(0x1.010002p0f), 1.0078125f);  // just above half way
  EXPECT_EQ(round_to_bf16(3.4e38f), kInf);              // beyond the largest bf16
  EXPECT_EQ(round_to_bf16(-kInf), -kInf);
  EXPECT_TRUE(std::isnan(round_to_bf16(kNan)));
  EXPECT_TRUE(std::isnan(round_to_bf16(std::bit_cast<float>(0x7f800001u))));
  EXPECT_EQ(round_to_bf16(1e-40f), 0.0f);
  if (!gemm_has_bf16()) GTEST_SKIP() << "no bf16 here";
  // The kernel's rounding is the same, in every way of packing: products with the identity matrix.
  std::mt19937 random(11);
  for (const bool trans_a : {false, true})
    for (const bool trans_b : {false, true})
      for (const bool left : {false, true}) {
        Case test{.m = 39, .n = 39, .k = 39, .trans_a = trans_a, .trans_b = trans_b, .precision = Precision::kBf16};
        test.fill(1);
        std::vector<float>&unit = left ? test.a : test.b, &x = left ? test.b : test.a;
        const int64_t unit_stride = left ? test.args.lda : test.args.ldb, stride = left ? test.args.ldb : test.args.lda;
        std::fill(unit.begin(), unit.end(), 0.0f);
        for (int64_t i = 0; i < 39; ++i) unit[i * unit_stride + i] = 1;
        for (float& v : x)
          v = std::bit_cast<float>((static_cast<uint32_t>(random()) & 0x8fffffffu) | 0x38000000u);  // any mantissa
        const auto out = test.run(1);
        for (int64_t i = 0; i < 39; ++i)
          for (int64_t j = 0; j < 39; ++j) {
            const bool transposed = left ? trans_b : trans_a;
            EXPECT_EQ(out[i * test.args.ldc + j], round_to_bf16(x[transposed ? j * stride + i : i * stride + j]));
          }
      }
}

TEST(Gemm, OldContentsOfCDoNotMatterUnlessAccumulated) {
  Case test{.m = 20, .n = 40, .k = 900};
  test.fill(6);
  std::fill(test.c.begin(), test.c.end(), kNan);
  const auto out = test.run(1);
  for (int64_t row = 0; row < 20; ++row)
    for (int64_t j = 0; j < 40; ++j) EXPECT_TRUE(std::isfinite(out[row * test.args.ldc + j]));
}

TEST(Gemm, WorkspaceStaysWithinItsPromise) {
  for (const int64_t size : {1, 100, 1000, 5000})
    for (const int threads : {1, 8}) {
      EXPECT_LE(gemm_workspace(1, size, 6000, 1024, threads), size_t(13 + threads) << 20);
      EXPECT_LE(gemm_workspace(64, size, 40, 40, threads), size_t(13 + threads) << 20);
    }
  EXPECT_LE(gemm_workspace(1, 16, 16, 16, 1), size_t{80} << 10);
}
}  // namespace
}  // namespace linnet
