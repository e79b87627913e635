#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <span>
#include "quantized_testing.h"

namespace linnet {
namespace {
constexpr WeightFormat kFormats[] = {WeightFormat::kInt8, WeightFormat::kInt8Blocks, WeightFormat::kInt4Blocks};
constexpr WeightFormat kFileFormats[] = {WeightFormat::kQ8_0, WeightFormat::kQ4_0, WeightFormat::kQ4_1,
    WeightFormat::kQ5_0, WeightFormat::kQ5_1, WeightFormat::kQ4K, WeightFormat::kQ5K, WeightFormat::kQ6K};

// Each activation in 8 bits as the kernel rounds it, and sums of integers.
std::vector<double> int8_reference(Packed& w, const std::vector<float>& a, const GemmArgs& args) {
  const int64_t n = w.shape.rows, k = w.shape.columns;
  std::vector<double> c(static_cast<size_t>(args.m * n));
  std::vector<std::vector<int8_t>> codes;
  for (int64_t row = 0; row < n; ++row) codes.push_back(w.codes(row));
  for (int64_t i = 0; i < args.m; ++i) {
    float top = 0;
    for (int64_t t = 0; t < k; ++t) top = std::max(top, std::abs(a[i * k + t]));
    for (int64_t j = 0; j < n; ++j) {
      int64_t sum = 0;
      for (int64_t t = 0; t < k; ++t) sum += top == 0 ? 0 : std::lrintf(a[i * k + t] * (127 / top)) * codes[j][t];
      double x = static_cast<double>(sum) * (top / 127) * w.weight().row_scales()[j];
      if (args.residual) x += args.residual[i * n + j];
      if (args.bias) x += args.bias[j];
      c[i * n + j] = args.activation == GemmActivation::kRelu ? std::max(x, 0.0) : x;
    }
  }
  return c;
}

// Weights of another quantizer, whose neighbors may be 127 both, and activations of a scale and a zero point that the
// model says: the sums are those of whole numbers in every way that processors have.
TEST(QuantizedGemm, RoundsByAScaleThatIsGiven) {
  ThreadPool pool(2);
  constexpr int64_t kRows = 9, kColumns = 70, kOutputs = 35;
  const auto a = random_floats(kRows * kColumns, 3);
  std::vector<int8_t> codes(kOutputs * kColumns, 127);
  for (size_t i = 0; i < codes.size(); i += 3) codes[i] = static_cast<int8_t>(i * 7 % 256 - 128);
  for (const int zero : {128, 3}) {
    const StaticRounding rounding{.scale = 0.011F, .zero = zero, .any_weight = true};
    const PackedShape shape{WeightFormat::kInt8, kOutputs, kColumns};
    Packed packed(shape.format, shape.rows, shape.columns, std::vector<float>(codes.size()));
    std::vector<double> expected;
    for (int64_t j = 0; j < kOutputs; ++j) {
      const float scale = 0.5F;
      const std::span row(codes.data() + j * kColumns, static_cast<size_t>(kColumns));
      pack_row(shape, j, row.data(), &scale, packed.memory.data());
      auto* sums = reinterpret_cast<int32_t*>(packed.memory.data() + shape.sums_offset());
      sums[j] = zero * std::accumulate(row.begin(), row.end(), 0);
    }
    for (int64_t i = 0; i < kRows; ++i)
      for (int64_t j = 0; j < kOutputs; ++j) {
        int64_t sum = 0;
        for (int64_t t = 0; t < kColumns; ++t) {
          const long code = std::clamp(std::lrintf(a[i * kColumns + t] / rounding.scale) + zero, 0L, 255L);
          sum += (code - zero) * codes[j * kColumns + t];
        }
        expected.push_back(static_cast<float>(sum) * (rounding.scale * 0.5F));
      }
    for_every_way([&] {
      std::vector<float> c(expected.size(), kNan);
      const GemmArgs args{.m = kRows, .a = a.data(), .lda = kColumns, .trans_b = true, .c = c.data(), .ldc = kOutputs};
      AlignedBytes workspace(quantized_gemm_workspace(shape, kRows, false, pool.size()));
      quantized_gemm(args, packed.weight(), workspace.data(), pool, rounding);
      for (size_t i = 0; i < c.size(); ++i) ASSERT_EQ(c[i], static_cast<float>(expected[i])) << i;
    });
  }
}

// Ties and their neighbors, and what is no number a code stands for.
TEST(QuantizedGemm, RoundsAsADivisionDoes) {
  for (const float scale : {0.0131F, 0.02F, 1.0F, 3e-30F, 1e-41F}) {
    const StaticRounding rounding{.scale = scale, .least = 1};
    std::vector<float> x{0, -0.0F, kNan, INFINITY, -INFINITY, 1e38F, -1e38F};
    for (int half = -600; half <= 600; ++half) {
      const float tie = 0.5F * static_cast<float>(half) * scale;
      for (const float to : {-INFINITY, INFINITY}) x.push_back(std::nextafter(tie, to)), x.push_back(tie);
    }
    std::vector<uint8_t> expected;
    for (const float value : x) {
      const float code = std::nearbyint(value / scale) + 128;
      expected.push_back(static_cast<uint8_t>(code > 1 ? std::min(code, 255.0F) : 1));
    }
    for_every_way([&] {
      std::vector<uint8_t> codes(x.size());
      round_to_codes(x.data(), std::ssize(x), rounding, codes.data());
      ASSERT_EQ(codes, expected);
    });
  }
}

// Bytes between two products, as in a feed-forward block: the bits of a product whose floats are stored and rounded by
// the one that reads them. 70 outputs are no whole blocks of codes, 96 are.
TEST(QuantizedGemm, HandsOnCodesOfWhatItWouldStore) {
  constexpr int64_t kIn = 64, kOut = 40;
  const StaticRounding first{.scale = 0.02F, .least = 1}, second{.scale = 0.013F, .least = 1};
  for (const int64_t hidden : {70, 96}) {
    Packed up(WeightFormat::kInt8, hidden, kIn, random_floats(hidden * kIn, 4));
    Packed down(WeightFormat::kInt8, kOut, hidden, random_floats(kOut * hidden, 5));
    const auto bias = random_floats(hidden, 6);
    for (const auto activation : {GemmActivation::kNone, GemmActivation::kRelu, GemmActivation::kGelu})
      for (const int64_t rows : {1, 7, 33}) {
        const auto x = random_floats(rows * kIn, 7), residual = random_floats(rows * hidden, 8);
        for_every_way([&] {
          for (const int threads : {1, 3}) {
            ThreadPool pool(threads);
            const auto size = [](int64_t elements) { return static_cast<size_t>(elements); };
            std::vector<float> floats(size(rows * hidden), kNan), y(size(rows * kOut), kNan), y_of_codes(y);
            std::vector<uint8_t> rounded(floats.size()), codes(floats.size());
            GemmArgs args{.m = rows, .a = x.data(), .lda = kIn, .trans_b = true, .c = floats.data(), .ldc = hidden};
            args.bias = bias.data(), args.residual = residual.data(), args.activation = activation;
            AlignedBytes workspace(quantized_gemm_workspace(up.shape, rows, false, threads) +
                                   quantized_gemm_workspace(down.shape, rows, false, threads));
            quantized_gemm(args, up.weight(), workspace.data(), pool, first);
            round_to_codes(floats.data(), rows * hidden, second, rounded.data());
            args.c = nullptr;
            quantized_gemm(
                args, up.weight(), workspace.data(), pool, first, {.c = codes.data(), .result_rounding = second});
            ASSERT_EQ(codes, rounded);

            GemmArgs next{.m = rows, .a = floats.data(), .lda = hidden, .trans_b = true, .c = y.data(), .ldc = kOut};
            quantized_gemm(next, down.weight(), workspace.data(), pool, second);
            next.a = nullptr, next.c = y_of_codes.data();
            AlignedBytes little(quantized_gemm_workspace(down.shape, rows, false, threads, /*codes=*/true));
            quantized_gemm(next, down.weight(), little.data(), pool, second, {.a = codes.data()});
            ASSERT_TRUE(same_bits(y_of_codes, y));
          }
        });
      }
  }
}

TEST(PackedWeight, ValuesComeBackWithinTheirRounding) {
  for (const WeightFormat format : kFormats)
    for (const int64_t columns : {1, 31, 32, 33, 100, 768}) {
      const auto w = random_floats(19 * columns, 3);
      Packed packed(format, 19, columns, w);
      const auto back = packed.values();
      double error = 0, size = 0;
      for (size_t i = 0; i < w.size(); ++i) error += std::pow(back[i] - w[i], 2), size += std::pow(w[i], 2);
      // A uniform variable of which 254 or 15 steps are taken; neighbors may
      // double the step of kInt8.
      const double most = format == WeightFormat::kInt4Blocks ? 0.09 : format == WeightFormat::kInt8 ? 0.011 : 0.006;
      EXPECT_LT(std::sqrt(error / size), most) << columns;
      for (int64_t row = 0; row < 19; ++row) {  // files hold codes and scales apart
        std::vector<int8_t> codes(static_cast<size_t>(columns));
        std::vector<float> scales(static_cast<size_t>(packed.shape.scales_of_row()));
        unpack_row(packed.weight(), row, codes.data(), scales.data());
        for (int64_t i = 0; i < columns; ++i)
          EXPECT_EQ(back[row * columns + i], static_cast<float>(codes[i]) * scales[scales.size() == 1 ? 0 : i / 32]);
      }
    }
}

// A file of fp32 may hold what was rounded before.
TEST(PackedWeight, BlocksOfBytesRoundOnce) {
  const auto w = random_floats(int64_t{64} * 256, 5);
  const std::vector<float> once = Packed(WeightFormat::kInt8Blocks, 64, 256, w).values();
  EXPECT_TRUE(same_bits(once, Packed(WeightFormat::kInt8Blocks, 64, 256, once).values()));
}

TEST(PackedWeight, NeighborsNeverExceedWhatSixteenBitsHold) {
  std::vector<float> w = random_floats(8 * 64, 4);
  std::fill_n(w.begin(), 64, 1.0F);         // all as large as can be
  std::fill_n(w.begin() + 64, 64, -3e20F);  // and negative
  for (int i = 0; i < 64; ++i) w[128 + i] = i % 2 == 0 ? 1.0F : 0.9F;
  Packed packed(WeightFormat::kInt8, 8, 64, w);
  const auto back = packed.values();
  for (int64_t row = 0; row < 8; ++row) {
    EXPECT_TRUE(neighbors_fit(packed.codes(row))) << row;
    for (int64_t i = 0; i < 64; ++i) EXPECT_NEAR(back[row * 64 + i] / w[row * 64 + i], 1, row < 3 ? 0.02 : 100);
  }
  const std::vector<int8_t> wrong{100, 29}, right{100, -29, 64, 64, 1};
  EXPECT_FALSE(neighbors_fit(wrong));
  EXPECT_TRUE(neighbors_fit(right));
}

TEST(PackedWeight, IsTheSameOnEveryInstructionSet) {
  for (const WeightFormat format : kFormats) {
    const auto w = random_floats(20 * 100, 12);
    std::vector<float> first;
    for (const auto& isa : available_isas()) {
      const ForcedIsa forced(isa);
      const auto values = Packed(format, 20, 100, w).values();
      if (first.empty()) first = values;
      EXPECT_TRUE(same_bits(values, first)) << isa;
    }
  }
}

TEST(PackedWeight, WhatIsNoNumberStaysVisible) {
  for (const WeightFormat format : kFormats)
    for (const float bad : {kNan, kInf}) {
      auto w = random_floats(3 * 64, 5);
      w[64 + 40] = bad;
      const auto back = Packed(format, 3, 64, w).values();
      EXPECT_TRUE(std::isfinite(back[0]) && std::isfinite(back[2 * 64 + 40]));
      EXPECT_TRUE(std::isnan(back[64 + 40]));
    }
}

// Extreme values in every instruction set: the sums are those of the
// definition, to the last bit of an integer.
TEST(QuantizedGemm, Int8SumsAreExactForExtremeOperands) {
  ThreadPool pool(2);
  const int64_t n = 37, k = 3000;
  std::mt19937 random(1);
  for (int pattern = 0; pattern < 4; ++pattern) {
    std::vector<float> w(static_cast<size_t>(n * k)), a(static_cast<size_t>(7 * k));
    for (float& x : w) x = pattern == 0 ? 1 : pattern == 1 ? -1 : random() % 2 ? 1 : -1;
    if (pattern == 3)  // single largest values among small ones: codes of +-127
      for (size_t i = 0; i < w.size(); ++i) w[i] *= i % 2 ? 1 : 0.005F;
    for (size_t i = 0; i < a.size(); ++i) a[i] = i < a.size() / 2 ? w[i] : -w[i];  // the worst case: all of one sign
    Packed packed(WeightFormat::kInt8, n, k, w);
    const GemmArgs args{.m = 7};
    const auto want = int8_reference(packed, a, args);
    for_every_way([&] {
      const auto c = multiply(packed, a, args, pool);
      for (size_t i = 0; i < c.size(); ++i) ASSERT_NEAR(c[i], want[i], 3e-7 * std::abs(want[i])) << pattern;
    });
  }
}

TEST(QuantizedGemm, Int8GivesTheSameBitsOnEveryInstructionSetWithAnyThreadsAndRows) {
  ThreadPool one(1), three(3);
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{1, 1}, {16, 32}, {75, 70}, {200, 513}, {33, 1600}}) {
    Packed packed(WeightFormat::kInt8, n, k, random_floats(n * k, 6));
    const int64_t rows = 45;
    const auto a = random_floats(rows * k, 7, -3, 1), bias = random_floats(n, 8), residual = random_floats(rows * n, 9);
    for (const bool relu : {false, true}) {
      GemmArgs args{.m = rows, .bias = bias.data(), .residual = relu ? nullptr : residual.data()};
      args.activation = relu ? GemmActivation::kRelu : GemmActivation::kNone;
      const auto want = int8_reference(packed, a, args);
      std::vector<float> first;
      for_every_way([&] {
        for (ThreadPool* pool : {&one, &three})
          for (const int64_t m : {rows, int64_t{1}, int64_t{9}}) {
            args.m = m;
            auto c = multiply(packed, a, args, *pool);
            if (first.empty()) {
              first = c;
              expect_close(c, want, 1e-5);
            }
            EXPECT_TRUE(same_bits(c, {first.begin(), first.begin() + m * n})) << n << " x " << k << ", " << m;
          }
      });
    }
  }
}

std::vector<PackedShape> shapes_in_blocks() {
  std::vector<PackedShape> shapes;
  for (const WeightFormat format : {WeightFormat::kInt8Blocks, WeightFormat::kInt4Blocks})
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{1, 1}, {16, 32}, {75, 70}, {100, 513}})
      shapes.push_back({format, n, k});
  for (const WeightFormat format : kFileFormats) shapes.push_back({format, 75, 512});
  shapes.push_back({WeightFormat::kQ4K, 75, 512, 27, WeightFormat::kQ6K});
  return shapes;
}

Packed random_packed(const PackedShape& shape) {
  if (is_file_format(shape.format)) return Packed(shape);
  return Packed(shape.format, shape.rows, shape.columns, random_floats(shape.rows * shape.columns, 6));
}

// The numbers of a file's blocks, bit for bit.
TEST(PackedWeight, BlocksOfFilesKeepTheirNumbers) {
  for (const PackedShape& shape : shapes_in_blocks()) {
    if (!is_file_format(shape.format)) continue;
    Packed packed(shape);
    std::vector<float> expected;
    const std::byte* from = packed.blocks.data();
    for (const PackedShape& part : {shape.head(), shape.tail()}) {
      const BlockFormat blocks = block_format(part.format);
      for (int64_t i = 0; i < part.rows * part.columns / (32 * blocks.unit); ++i, from += blocks.file_bytes()) {
        float values[256];
        file_block_values(part.format, from, values);
        expected.insert(expected.end(), values, values + 32 * blocks.unit);
      }
    }
    EXPECT_EQ(packed.values(), expected) << static_cast<int>(shape.format);
    const double bits = 8.0 * static_cast<double>(shape.bytes()) / static_cast<double>(80 * shape.columns);
    const double in_file = 8.0 * static_cast<double>(packed.blocks.size()) / static_cast<double>(75 * shape.columns);
    EXPECT_LT(bits, in_file + 0.2) << static_cast<int>(shape.format);
  }
}

// Few rows: their numbers are rounded to 16 bits in blocks of 32, and the bits
// are the same everywhere.
TEST(QuantizedGemm, BlocksGiveTheSameBitsForFewRowsOnEveryInstructionSet) {
  ThreadPool one(1), three(3);
  for (const PackedShape& shape : shapes_in_blocks()) {
    const int64_t n = shape.rows, k = shape.columns, rows = 11;
    Packed packed = random_packed(shape);
    const auto values = packed.values();
    const auto a = random_floats(rows * k, 7), bias = random_floats(n, 8), residual = random_floats(rows * n, 9);
    GemmArgs args{.bias = bias.data(), .residual = residual.data(), .activation = GemmActivation::kRelu};
    args.independent_rows = true;
    std::vector<float> first;
    SCOPED_TRACE(::testing::Message() << "format " << static_cast<int>(shape.format) << ": " << n << " x " << k);
    for_every_way([&] {
      for (ThreadPool* pool : {&one, &three})
        for (const int64_t m : {rows, int64_t{1}, int64_t{3}}) {
          args.m = m;
          const auto c = multiply(packed, a, args, *pool);
          if (first.empty()) first = c;
          EXPECT_TRUE(same_bits(c, {first.begin(), first.begin() + m * n})) << m;
        }
    });
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = residual[i * n + j] + bias[j], size = std::abs(sum) + 1, weights = 0;
        for (int64_t t = 0; t < k; ++t) {
          const double term = static_cast<double>(a[i * k + t]) * values[j * k + t];
          sum += term, size += std::abs(term), weights += std::abs(values[j * k + t]);
        }
        // A minimum is subtracted from what it is a part of: its rounding errors are as large as the codes' part.
        const double error = is_file_format(shape.format) ? 4e-6 : 4e-7;
        ASSERT_NEAR(first[i * n + j], std::max(sum, 0.0), error * size + 0.51 * 2 / 32767 * weights);
      }
  }
}

// Extreme values: codes of +-127 and -8 times activations of +-32767, all of
// one sign.
TEST(QuantizedGemm, BlocksAddUpExtremeOperands) {
  ThreadPool pool(1);
  const int64_t n = 20, k = 96;
  for (const WeightFormat format : {WeightFormat::kInt8Blocks, WeightFormat::kInt4Blocks})
    for (const float sign : {1.0F, -1.0F}) {
      Packed packed(format, n, k, std::vector<float>(static_cast<size_t>(n * k), sign));
      const double value = packed.values()[0];
      const std::vector<float> a(static_cast<size_t>(k), -1000.0F);
      for_every_way([&] {
        for (const float x : multiply(packed, a, {.m = 1}, pool)) ASSERT_NEAR(x, -1000 * value * 96, 0.1);
      });
    }
}

// More rows: strips of the weight in fp32.
TEST(QuantizedGemm, BlocksGiveTheProductOfTheNumbersTheyStandFor) {
  ThreadPool pool(2), one(1);
  for (const WeightFormat format : {WeightFormat::kInt8Blocks, WeightFormat::kInt4Blocks})
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{75, 70}, {1030, 1040}}) {
      Packed packed(format, n, k, random_floats(n * k, 6));
      const auto values = packed.values();
      const int64_t rows = 9;
      const auto a = random_floats(rows * k, 7), bias = random_floats(n, 8), residual = random_floats(rows * n, 9);
      const GemmArgs args{
          .m = rows, .bias = bias.data(), .residual = residual.data(), .activation = GemmActivation::kGelu};
      for (const auto& isa : {available_isas().front(), available_isas().back()}) {
        const ForcedIsa forced(isa);
        const auto c = multiply(packed, a, args, pool);
        EXPECT_TRUE(same_bits(c, multiply(packed, a, args, one))) << "one thread differs from two";
        for (int64_t i = 0; i < rows; ++i)
          for (int64_t j = 0; j < n; ++j) {
            double sum = residual[i * n + j] + bias[j], size = std::abs(sum) + 1;
            for (int64_t t = 0; t < k; ++t) {
              const double term = static_cast<double>(a[i * k + t]) * values[j * k + t];
              sum += term, size += std::abs(term);
            }
            sum = sum * (1 + std::erf(sum / M_SQRT2)) / 2;
            ASSERT_NEAR(c[i * n + j], sum, 4e-7 * size) << isa << ": " << n << " x " << k << ", row " << i;
          }
      }
    }
}

// Many rows in fp32: codes are unpacked as the product packs its panels, also where these end within a block of codes.
TEST(QuantizedGemm, CodesGiveTheBitsOfTheProductOfTheirNumbers) {
  using enum WeightFormat;
  ThreadPool pool(2);
  for (const WeightFormat format : {kInt8Blocks, kInt4Blocks, kQ4_1, kQ5_0, kQ6K})
    for (const int64_t n : {75, 850}) {
      const int64_t m = 40, k = 2048;
      Packed packed = random_packed({format, n, k});
      const auto values = packed.values(), x = random_floats(m * k, 7), dy = random_floats(m * n, 8);
      for_every_way([&] {
        for (const bool forward : {true, false}) {
          GemmArgs args{.m = m, .n = forward ? n : k, .k = forward ? k : n, .b = values.data(), .ldb = k};
          args.trans_b = forward, args.lda = args.k, args.ldc = args.n;
          args.a = forward ? x.data() : dy.data();
          std::vector<float> expected(static_cast<size_t>(args.m * args.n)), found = expected;
          args.c = expected.data();
          AlignedBytes plain(gemm_workspace(1, args.m, args.n, args.k, pool.size()));
          gemm(args, plain.data(), pool);
          args.c = found.data(), args.b = {};
          AlignedBytes workspace(quantized_gemm_workspace(packed.shape, m, /*few=*/false, pool.size()));
          quantized_gemm(args, packed.weight(), workspace.data(), pool);
          EXPECT_TRUE(same_bits(found, expected)) << static_cast<int>(format) << ", " << n << ", " << forward;
        }
      });
    }
}

// What a training step needs of a frozen layer, of one strip and of several: forward with the values before the
// activation function, and the gradient of its input with the derivative of the function before it.
TEST(QuantizedGemm, StripsGiveWhatTheBackwardPassNeeds) {
  ThreadPool pool(2);
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kInt8Blocks, WeightFormat::kInt4Blocks})
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{48, 70}, {1100, 1040}}) {
      Packed packed(format, n, k, random_floats(n * k, 6));
      const auto values = packed.values();
      const int64_t m = 5;
      const auto x = random_floats(m * k, 7), dy = random_floats(m * n, 8), bias = random_floats(n, 9),
                 aux = random_floats(m * k, 10), start = random_floats(m * k, 11);
      GemmArgs forward{.m = m, .a = x.data(), .lda = k, .trans_b = true, .ldc = n, .bias = bias.data()};
      GemmArgs backward{.m = m, .a = dy.data(), .lda = n, .ldc = k, .residual = start.data()};
      std::vector<float> y(static_cast<size_t>(m * n)), pre = y, dx(static_cast<size_t>(m * k));
      forward.c = y.data(), forward.pre_activation = pre.data(), forward.activation = GemmActivation::kGelu;
      backward.c = dx.data(), backward.derivative = GemmActivation::kRelu, backward.aux = aux.data();
      backward.derivative_scale = 3;
      for (const GemmArgs& args : {forward, backward}) {
        AlignedBytes workspace(quantized_gemm_workspace(packed.shape, m, /*few=*/false, pool.size()));
        quantized_gemm(args, packed.weight(), workspace.data(), pool);
      }
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          double sum = bias[j], size = 1;
          for (int64_t t = 0; t < k; ++t)
            sum += static_cast<double>(x[i * k + t]) * values[j * k + t], size += std::abs(x[i * k + t]);
          ASSERT_NEAR(pre[i * n + j], sum, 2e-6 * size);
          const double before = pre[i * n + j];
          ASSERT_NEAR(y[i * n + j], before * (1 + std::erf(before / M_SQRT2)) / 2, 1e-5);
        }
        for (int64_t t = 0; t < k; ++t) {
          double sum = start[i * k + t], size = 1;
          for (int64_t j = 0; j < n; ++j)
            sum += static_cast<double>(dy[i * n + j]) * values[j * k + t], size += std::abs(dy[i * n + j]);
          ASSERT_NEAR(dx[i * k + t], aux[i * k + t] > 0 ? 3 * sum : 0, 1e-5 * size) << i << ", " << t;
        }
      }
    }
}

TEST(PackedWeight, Bf16IsTheNearestNumberOfBf16) {
  const auto w = random_floats(7 * 45, 3);
  const auto back = Packed(WeightFormat::kBf16, 7, 45, w).values();
  for (size_t i = 0; i < w.size(); ++i) EXPECT_EQ(back[i], round_to_bf16(w[i]));
  EXPECT_TRUE(same_bits(Packed(WeightFormat::kBf16, 7, 45, back).values(), back));
}

TEST(QuantizedGemm, NanAndInfinityReachTheirRowAlone) {
  for (const WeightFormat format : kFormats)
    for (const float bad : {kNan, kInf, -kInf}) {
      Packed packed(format, 40, 64, random_floats(40 * 64, 1));
      auto a = random_floats(12 * 64, 2);
      a[3 * 64 + 50] = bad;
      for_every_way([&] {
        ThreadPool pool(1);
        const auto c = multiply(packed, a, {.m = 12, .activation = GemmActivation::kRelu}, pool);
        bool bad_row = false;
        for (int64_t j = 0; j < 40; ++j) bad_row = bad_row || !std::isfinite(c[3 * 40 + j]);
        EXPECT_TRUE(bad_row);
        for (int64_t i = 0; i < 12 * 40; ++i) EXPECT_TRUE(i / 40 == 3 || std::isfinite(c[i]));
      });
    }
}

TEST(QuantizedGemm, RowsOfZerosGiveTheBias) {
  for (const WeightFormat format : kFormats) {
    Packed packed(format, 20, 40, random_floats(20 * 40, 1));
    const auto bias = random_floats(20, 2);
    ThreadPool pool(1);
    const auto c = multiply(packed, std::vector<float>(80, 0.0F), {.m = 2, .bias = bias.data()}, pool);
    for (int64_t i = 0; i < 40; ++i) EXPECT_EQ(c[i], bias[i % 20]);
  }
}
}  // namespace
}  // namespace linnet
