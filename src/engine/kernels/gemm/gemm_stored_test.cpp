// Products whose matrices lie in memory as bf16, in any mixture.
#include <gtest/gtest.h>
#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <random>
#include "engine/kernels/gemm/gemm.h"
#include "kernel_testing.h"

namespace linnet {
namespace {
// Numbers that bf16 holds exactly, and the same as bf16.
struct Matrix {
  std::vector<float> floats;
  std::vector<Bfloat16> bf16;

  Matrix(int64_t count, uint32_t seed) : floats(random_floats(count, seed, -1, 1)) {
    for (float& x : floats) bf16.emplace_back(x), x = bf16.back();
  }
  StoredFloats stored(bool reduced) const { return reduced ? StoredFloats(bf16.data()) : StoredFloats(floats.data()); }
  MutableStoredFloats stored(bool reduced) {
    return reduced ? MutableStoredFloats(bf16.data()) : MutableStoredFloats(floats.data());
  }
  float at(bool reduced, size_t i) const { return reduced ? static_cast<float>(bf16[i]) : floats[i]; }
};

// Which matrices are bf16, by bit.
enum Stored : unsigned { kA = 1, kB = 2, kC = 4, kResidual = 8, kPreActivation = 16, kAux = 32, kAll = 63 };

struct StoredCase {
  int64_t batch, m, n, k;
  bool trans_a, trans_b, accumulate, residual, bias, pre_activation;
  GemmActivation activation, derivative;
  unsigned stored;

  struct Result {
    std::vector<float> c, pre_activation;
  };

  Result run(unsigned reduced, int threads) const {
    GemmArgs g{.batch = batch, .m = m, .n = n, .k = k, .trans_a = trans_a, .trans_b = trans_b};
    g.lda = (trans_a ? m : k) + 3, g.ldb = (trans_b ? k : n) + 1, g.ldc = n + 2;
    g.a_batch = (trans_a ? k : m) * g.lda, g.b_batch = (trans_b ? n : k) * g.ldb, g.c_batch = m * g.ldc;
    const int64_t results = batch * g.c_batch;
    Matrix a(batch * g.a_batch, 1), b(batch * g.b_batch, 2), c(results, 3), added(results, 4), before(results, 5),
        aux(results, 6);
    const std::vector<float> bias_values = random_floats(n, 7);
    g.a = std::as_const(a).stored(reduced & kA), g.b = std::as_const(b).stored(reduced & kB);
    g.c = c.stored(reduced & kC), g.accumulate = accumulate, g.precision = Precision::kBf16;
    if (bias) g.bias = bias_values.data();
    if (residual) g.residual = std::as_const(added).stored(reduced & kResidual);
    if (pre_activation) g.pre_activation = before.stored(reduced & kPreActivation);
    if (derivative != GemmActivation::kNone) g.aux = std::as_const(aux).stored(reduced & kAux);
    g.activation = activation, g.derivative = derivative, g.derivative_scale = 1.25f;
    ThreadPool pool(threads);
    const size_t bytes = gemm_workspace(batch, m, n, k, threads, is_stored_in_bf16(g));
    std::vector<float> memory(bytes / sizeof(float) + 32, kNan);
    auto* workspace = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
    const float* end = reinterpret_cast<const float*>(workspace + bytes);
    gemm(g, workspace, pool);
    EXPECT_TRUE(std::all_of(end, static_cast<const float*>(memory.data() + memory.size()), [](float x) {
      return x != x;
    })) << "past the workspace";
    Result result;
    for (int64_t i = 0; i < results; ++i) {
      result.c.push_back(c.at(reduced & kC, static_cast<size_t>(i)));
      result.pre_activation.push_back(before.at(reduced & kPreActivation, static_cast<size_t>(i)));
    }
    return result;
  }

  // In one block of k, and with operands that are packed either way, the sums have the bits of fp32 in memory.
  bool same_sums() const { return m > 8 && n > 16 && (k <= 1536 || (!accumulate && !residual)); }

  void check() const {
    const Result want = run(0, 1), got = run(stored, 1);
    // GELU of what is stored in bf16 is that of the rounded x.
    const bool of_rounded = (stored & kC) && activation > GemmActivation::kRelu;
    compare(got.c, want.c, stored & kC, same_sums() && !of_rounded);
    compare(got.pre_activation, want.pre_activation, stored & kPreActivation, same_sums());
    if (of_rounded && pre_activation && (stored & kPreActivation)) check_function_of_stored(got);
    for (const int threads : {2, 3}) {
      const Result other = run(stored, threads);
      EXPECT_TRUE(same_bits(other.c, got.c)) << threads << " threads";
      EXPECT_TRUE(same_bits(other.pre_activation, got.pre_activation)) << threads << " threads";
    }
  }

  // What is in C is the function of what is in pre_activation.
  void check_function_of_stored(const Result& got) const {
    for (int64_t row = 0; row < batch * m; ++row)
      for (int64_t j = 0; j < n; ++j) {
        const auto i = static_cast<size_t>(row * (n + 2) + j);
        const double x = got.pre_activation[i], u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
        const double want =
            activation == GemmActivation::kGelu ? x * (1 + std::erf(x / M_SQRT2)) / 2 : x * (1 + std::tanh(u)) / 2;
        ASSERT_NEAR(got.c[i], want, 0x1.02p-8 * std::abs(want) + 1e-6);
      }
  }

  void compare(const std::vector<float>& got, std::vector<float> want, bool rounded, bool same) const {
    for (float& x : want) x = rounded ? round_to_bf16(x) : x;
    if (same) {
      EXPECT_TRUE(same_bits(got, want));
    } else {
      expect_close(got, want, rounded ? 0x1p-6 : 2e-5);
    }
  }
};

std::string text(const StoredCase& c) {
  return std::to_string(c.batch) + " x " + std::to_string(c.m) + " x " + std::to_string(c.n) + " x " +
         std::to_string(c.k) + (c.trans_a ? " trans_a" : "") + (c.trans_b ? " trans_b" : "") +
         (c.accumulate ? " accumulate" : "") + (c.residual ? " residual" : "") + (c.bias ? " bias" : "") +
         (c.pre_activation ? " pre_activation" : "") + " activation " + std::to_string(static_cast<int>(c.activation)) +
         " derivative " + std::to_string(static_cast<int>(c.derivative)) + " stored " + std::to_string(c.stored);
}

void check(const StoredCase& c) {
  SCOPED_TRACE(text(c));
  c.check();
}

TEST(GemmStored, AnyMixtureOfTypesInAnyShape) {
  if (!gemm_has_bf16()) GTEST_SKIP() << "no bf16 here";
  std::mt19937 random(11);
  for (int round = 0; round < 400; ++round) {
    const auto draw = [&](int64_t most) { return 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(most)); };
    const auto flip = [&] { return random() % 2 == 0; };
    const int64_t size = round % 4 == 0 ? 20 : 130;
    StoredCase c{.batch = flip() ? 1 : draw(3), .m = draw(size), .n = draw(size), .k = draw(size)};
    c.trans_a = flip(), c.trans_b = flip(), c.bias = flip();
    c.accumulate = random() % 4 == 0, c.residual = !c.accumulate && random() % 3 == 0;
    (flip() ? c.activation : c.derivative) = static_cast<GemmActivation>(random() % 4);
    c.pre_activation = c.activation > GemmActivation::kRelu && flip();
    c.stored = 1 + random() % kAll;
    check(c);
  }
}

// Whole panels of columns take a shorter way from the sums to memory than the last columns; both do the same.
TEST(GemmStored, WholePanelsAreFinishedAsPartsOfPanelsAre) {
  if (!gemm_has_bf16()) GTEST_SKIP() << "no bf16 here";
  for (int function = 0; function < 4; ++function)
    for (const bool accumulate : {false, true})
      for (const bool residual : {false, !accumulate})
        for (const bool bias : {false, true}) {
          const auto activation = static_cast<GemmActivation>(function), none = GemmActivation::kNone;
          const bool pre_activation = activation > GemmActivation::kRelu && bias;
          check({1, 37, 96 + 5, 50, false, true, accumulate, residual, bias, pre_activation, activation, none, kAll});
          check({1, 37, 96 + 5, 50, false, false, accumulate, residual, bias, false, none, activation, kAll});
        }
}

// NaN, infinities, denormals and ties, added to a product of zeros.
TEST(GemmStored, WholePanelsRoundSpecialNumbersAsRoundToBf16Does) {
  if (!gemm_has_bf16()) GTEST_SKIP() << "no bf16 here";
  constexpr int64_t kSize = 32;
  const std::vector<float> special{kNan, kInf, -kInf, 0.0f, 0x1p0f, 0x1.02p0f, 0x1.fep127f};
  std::vector<float> residual(kSize * kSize);
  for (size_t i = 0; i < residual.size(); ++i) residual[i] = special[i % special.size()];
  std::vector<Bfloat16> a(kSize * kSize, Bfloat16(0)), b(kSize * kSize, Bfloat16(0)), c(kSize * kSize);
  std::vector<Bfloat16> added(residual.begin(), residual.end());
  GemmArgs g{.m = kSize, .n = kSize, .k = kSize, .a = a.data(), .lda = kSize, .b = b.data(), .ldb = kSize};
  g.c = c.data(), g.ldc = kSize, g.precision = Precision::kBf16, g.residual = added.data();
  // Values between those of bf16 come by the bias, which is fp32.
  std::vector<float> bias(kSize);
  const float between[] = {0x1p-8f, -0x1p-9f, 0x1p-130f, 0x1p119f};
  for (size_t j = 0; j < bias.size(); ++j) bias[j] = between[j % 4];
  g.bias = bias.data();
  std::vector<std::byte> memory(gemm_workspace(1, kSize, kSize, kSize, 1, true) + 64);
  ThreadPool pool(1);
  gemm(g, reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64), pool);
  for (size_t i = 0; i < c.size(); ++i) {
    const float want = round_to_bf16(0.0f + static_cast<float>(added[i]) + bias[i % kSize]);
    if (want != want) EXPECT_TRUE(std::isnan(static_cast<float>(c[i]))) << i;
    else EXPECT_EQ(std::bit_cast<uint32_t>(static_cast<float>(c[i])), std::bit_cast<uint32_t>(want)) << i;
  }
}

// Several blocks along k; many rows of C and few, whose orders differ; and a k for which pieces become shorter.
TEST(GemmStored, SumsOfALongProductAreRoundedOnce) {
  if (!gemm_has_bf16()) GTEST_SKIP() << "no bf16 here";
  constexpr auto kNone = GemmActivation::kNone;
  for (const int64_t k : {1537, 3072, 9000})
    for (const bool transposed : {false, true}) {
      check({1, 150, 40, k, transposed, !transposed, false, false, true, false, kNone, kNone, kAll});
      check({1, 40, 150, k, transposed, transposed, false, false, true, true, GemmActivation::kGelu, kNone, kAll});
      check(
          {1, 40, 40, k, transposed, !transposed, true, false, false, false, kNone, GemmActivation::kGelu, kC | kAux});
    }
}

// A column of A's product by ones is the sum of 2^12 and 4096 times 2^-10, which no bf16 on the way could hold.
TEST(GemmStored, PartialSumsAreNeverRounded) {
  if (!gemm_has_bf16()) GTEST_SKIP() << "no bf16 here";
  constexpr int64_t kDepth = 4097, kSize = 32;
  std::vector<Bfloat16> a(kSize * kDepth, Bfloat16(0x1p-10f)), b(kSize * kDepth, Bfloat16(1)), c(kSize * kSize);
  for (int64_t i = 0; i < kSize; ++i) a[static_cast<size_t>(i * kDepth)] = Bfloat16(4096);
  GemmArgs g{.m = kSize, .n = kSize, .k = kDepth, .a = a.data(), .lda = kDepth, .b = b.data(), .ldb = kDepth};
  g.trans_b = true, g.c = c.data(), g.ldc = kSize, g.precision = Precision::kBf16;
  const std::vector<float> residual(kSize * kSize, -4096.0f);
  g.residual = residual.data();
  std::vector<std::byte> memory(gemm_workspace(1, kSize, kSize, kDepth, 1, true) + 64);
  ThreadPool pool(1);
  gemm(g, reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64), pool);
  for (const Bfloat16 x : c) ASSERT_EQ(static_cast<float>(x), 4.0f);
}

// Decoding with weights of bf16, on every processor.
TEST(FewRows, AWeightInBf16GivesTheBitsOfItsNumbersInFp32) {
  for (const int64_t m : {1, 3, 7, 11}) {
    constexpr int64_t n = 37, k = 131;
    const Matrix a(m * k, 1), w(n * k, 2);
    const std::vector<float> bias = random_floats(n, 3), residual = random_floats(m * n, 4);
    const auto run = [&](bool reduced, ThreadPool& pool) {
      std::vector<float> c(static_cast<size_t>(m * n), kNan);
      GemmArgs g{.m = m, .n = n, .k = k, .trans_b = true};
      g.a = a.floats.data(), g.lda = k, g.b = w.stored(reduced), g.ldb = k, g.c = c.data(), g.ldc = n;
      g.bias = bias.data(), g.residual = residual.data(), g.activation = GemmActivation::kGelu;
      g.independent_rows = true;
      if (reduced) {
        gemm_few_rows(g, pool);
        return c;
      }
      std::vector<std::byte> workspace(gemm_workspace(1, m, n, k, pool.size()) + 64);
      auto* aligned = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(workspace.data()) + 63) / 64 * 64);
      gemm(g, aligned, pool);
      return c;
    };
    for_every_isa([&](ThreadPool& pool) { return run(true, pool); },
        [&](const std::vector<float>& got) {
          ThreadPool one(1);
          EXPECT_TRUE(same_bits(got, run(false, one))) << m << " rows";
        });
  }
}
}  // namespace
}  // namespace linnet
