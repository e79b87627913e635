// Products with weights that were packed beforehand: the bits of those that pack their weight themselves.
#include <gtest/gtest.h>
#include <algorithm>
#include <array>
#include "engine/kernels/gemm/gemm.h"
#include "kernel_testing.h"

namespace linnet {
namespace {
struct PanelCase {
  int64_t m, n, k;
  bool trans_b = true, bias = false, residual = false;
  GemmActivation activation = GemmActivation::kNone;
  Precision precision = Precision::kF32;
  bool stored_in_bf16 = false;  // A and C
  bool is_apart = false;        // panels in memory of their own
  bool weight_in_bf16 = false;

  std::vector<float> run(bool packed, int threads) const {
    const std::vector<float> a = random_floats(m * k, 1), bias_values = random_floats(n, 2),
                             added = random_floats(m * n, 3);
    const std::vector<Bfloat16> short_a = to_bf16(a);
    std::vector<float> memory = random_floats(n * k + 16, 4), c(static_cast<size_t>(m * n), kNan);
    float* weight = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
    std::copy_n(random_floats(n * k, 5).begin(), n * k, weight);
    auto* short_weight = reinterpret_cast<Bfloat16*>(weight);
    if (weight_in_bf16) std::ranges::copy(to_bf16(random_floats(n * k, 5)), short_weight);
    std::vector<Bfloat16> short_c(c.size());
    ThreadPool pool(threads);
    GemmArgs g{.m = m, .n = n, .k = k};
    g.a = stored_in_bf16 ? StoredFloats(short_a.data()) : StoredFloats(a.data()), g.lda = k;
    g.c = stored_in_bf16 ? MutableStoredFloats(short_c.data()) : MutableStoredFloats(c.data()), g.ldc = n;
    g.b = weight_in_bf16 ? StoredFloats(short_weight) : StoredFloats(weight), g.ldb = trans_b ? k : n,
    g.trans_b = trans_b, g.precision = precision, g.activation = activation;
    if (bias) g.bias = bias_values.data();
    if (residual) g.residual = added.data();
    std::vector<float> scratch(gemm_workspace(1, m, n, k, threads, stored_in_bf16) / sizeof(float) + 16, kNan);
    auto* workspace = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
    std::vector<float> apart(static_cast<size_t>(panel_floats(n, k)) + 16, kNan);
    if (packed && is_apart) {
      float* panels = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(apart.data()) + 63) / 64 * 64);
      pack_panels_apart({n, k, trans_b, precision}, weight, panels, pool);
      g.b = panels;
      gemm_panels(g, workspace, pool);
    } else if (packed) {
      pack_panels({n, k, trans_b, precision, weight_in_bf16}, weight, pool);
      g.b = weight;
      gemm_panels(g, workspace, pool);
    } else {
      gemm(g, workspace, pool);
    }
    return stored_in_bf16 ? to_floats(short_c) : c;
  }
};

void expect_same_bits(const PanelCase& test) {
  for (const auto& isa : available_isas()) {
    const ForcedIsa forced(isa);
    if ((test.stored_in_bf16 || test.weight_in_bf16) && !gemm_has_bf16()) continue;
    const std::vector<float> expected = test.run(false, 1);
    for (const int threads : {1, 2, 3})
      EXPECT_TRUE(same_bits(test.run(true, threads), expected))
          << isa << ", " << test.m << " x " << test.n << " x " << test.k << ", " << threads << " threads";
  }
}

TEST(Panels, ApartFromTheWeightTheyAreOfAnySize) {
  for (const bool trans_b : {false, true})
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{49, 24, 77}, {196, 112, 672}, {30, 200, 801}, {16, 33, 5}})
      expect_same_bits({.m = m, .n = n, .k = k, .trans_b = trans_b, .bias = true, .is_apart = true});
}

// Both orders in which products are cut: rows dealt out, or columns; one block along k, or several.
TEST(Panels, BitsAreThoseOfAWeightThatEveryProductPacks) {
  for (const Precision precision : {Precision::kF32, Precision::kBf16})
    for (const bool trans_b : {true, false})
      for (const auto& [m, n, k] : {std::array<int64_t, 3>{9, 32, 6}, {40, 192, 96}, {33, 64, 1540}, {200, 96, 782}})
        expect_same_bits({.m = m, .n = n, .k = k, .trans_b = trans_b, .precision = precision});
}

TEST(Panels, AWeightInBf16TakesItsOwnMemory) {
  for (const bool trans_b : {true, false})
    expect_same_bits({.m = 40,
        .n = 192,
        .k = 96,
        .trans_b = trans_b,
        .bias = true,
        .precision = Precision::kBf16,
        .weight_in_bf16 = true});
}

TEST(Panels, SeveralSharedBlocks) {  // of B along n, and of A along k
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{1032, 4128, 768}, {1000, 1536, 3200}}) {
    const PanelCase test{.m = m, .n = n, .k = k};
    EXPECT_TRUE(same_bits(test.run(true, 2), test.run(false, 1)));
  }
}

TEST(Panels, EpiloguesAreApplied) {
  for (const Precision precision : {Precision::kF32, Precision::kBf16})
    for (const auto activation : {GemmActivation::kRelu, GemmActivation::kGelu})
      expect_same_bits({.m = 37,
          .n = 64,
          .k = 900,
          .bias = true,
          .residual = true,
          .activation = activation,
          .precision = precision});
}

TEST(Panels, ActivationsInBf16) {
  for (const int64_t m : {20, 300})
    expect_same_bits({.m = m,
        .n = 96,
        .k = 1700,
        .bias = true,
        .activation = GemmActivation::kGelu,
        .precision = Precision::kBf16,
        .stored_in_bf16 = true});
}

TEST(Panels, FewRowsAndPartOfAPanelHaveNone) {
  EXPECT_TRUE(has_panels(9, 64, 64));
  EXPECT_FALSE(has_panels(8, 64, 64));
  EXPECT_FALSE(has_panels(100, 65, 64));
  EXPECT_FALSE(has_panels(100, 64, 63));
}
}  // namespace
}  // namespace linnet
