// Products of a training in int8: weights that are rounded and packed in each step, and rows with outliers.
#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <vector>
#include "quantized_testing.h"

namespace linnet {
namespace {
std::vector<std::byte> quantized(
    const PackedShape& shape, const std::vector<float>& w, bool transposed, ThreadPool& pool) {
  std::vector<std::byte> packed(shape.bytes(), std::byte{0x5a});  // what was there before
  AlignedBytes workspace(quantize_weight_workspace(shape, pool.size()));
  quantize_weight(shape, w.data(), transposed, packed.data(), workspace.data(), pool);
  return packed;
}

TEST(QuantizeWeight, RoundsToTheNearestCodeAndTransposes) {
  ThreadPool one(1), three(3);
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 1}, {16, 32}, {37, 70}, {200, 515}}) {
    const PackedShape shape{WeightFormat::kInt8, rows, columns};
    auto w = random_floats(rows * columns, 3);
    std::fill_n(w.begin(), columns, 0.0F);  // a row of zeros
    if (rows > 2) w[static_cast<size_t>(2 * columns)] = kNan;
    std::vector<float> across(w.size());
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) across[j * rows + i] = w[i * columns + j];
    for_every_way([&] {
      const auto packed = quantized(shape, w, false, one), threads = quantized(shape, w, false, three),
                 turned = quantized(shape, across, true, three);
      const size_t used = shape.sums_offset() + static_cast<size_t>(shape.panels() * PackedShape::kPanel * 4);
      EXPECT_TRUE(std::equal(packed.data(), packed.data() + used, threads.data()));
      EXPECT_TRUE(std::equal(packed.data(), packed.data() + used, turned.data()));
      std::vector<int8_t> codes(static_cast<size_t>(columns));
      for (int64_t i = 0; i < rows; ++i) {
        float scale = 0;
        unpack_row({shape, packed.data()}, i, codes.data(), &scale);
        if (i == 2) {
          EXPECT_TRUE(std::isnan(scale));
          continue;
        }
        EXPECT_TRUE(has_vnni() || neighbors_fit(codes));
        for (int64_t j = 0; j < columns; ++j)
          ASSERT_NEAR(static_cast<float>(codes[static_cast<size_t>(j)]) * scale, w[i * columns + j], 0.5001F * scale);
      }
    });
  }
}

// A number a hundred times as large as its neighbors leaves them a step or two. With the remainder they keep 8 bits.
TEST(QuantizeWeight, RowsWithAnOutlierAreMultipliedWithTheirRemainder) {
  constexpr int64_t kRows = 23, kColumns = 300, kOutputs = 75;
  ThreadPool one(1), three(3);
  const PackedShape shape{WeightFormat::kInt8, kOutputs, kColumns};
  auto a = random_floats(kRows * kColumns, 7);
  const auto w = random_floats(kOutputs * kColumns, 8), bias = random_floats(kOutputs, 9);
  for (const int64_t row : {2, 3, 22}) a[static_cast<size_t>(row * kColumns + 5 * row)] = 300;
  for_every_way([&] {
    const auto packed = quantized(shape, w, false, one);
    const PackedWeight weight{shape, packed.data()};
    std::vector<float> values(w.size());
    dequantize_rows(weight, 0, kOutputs, values.data(), one);
    // The largest error of each row, in parts of the largest result without the outlier.
    const auto errors = [&](float largest_error, ThreadPool& pool, std::vector<float>& c) {
      c.assign(static_cast<size_t>(kRows * kOutputs), kNan);
      const GemmArgs args{.m = kRows,
          .a = a.data(),
          .lda = kColumns,
          .trans_b = true,
          .c = c.data(),
          .ldc = kOutputs,
          .bias = bias.data()};
      AlignedBytes workspace(quantized_gemm_workspace(shape, kRows, false, pool.size(), false, largest_error > 0));
      quantized_gemm(args, weight, workspace.data(), pool, {.largest_error = largest_error});
      std::vector<double> found;
      for (int64_t i = 0; i < kRows; ++i) {
        double most = 0, size = 0;
        for (int64_t j = 0; j < kOutputs; ++j) {
          double sum = bias[j], small = 0;
          for (int64_t t = 0; t < kColumns; ++t) {
            const double x = static_cast<double>(a[i * kColumns + t]) * values[j * kColumns + t];
            sum += x, small += std::abs(a[i * kColumns + t]) < 100 ? x : 0;
          }
          most = std::max(most, std::abs(c[i * kOutputs + j] - sum)), size = std::max(size, std::abs(small));
        }
        found.push_back(most / size);
      }
      return found;
    };
    std::vector<float> plain, c, again;
    const auto without = errors(0, one, plain), with = errors(0.04F, one, c);
    for (const size_t row : {2, 3, 22}) EXPECT_GT(without[row], 0.1) << row;
    for (size_t row = 0; row < with.size(); ++row) EXPECT_LT(with[row], 0.02) << row;
    errors(0.04F, three, again);
    EXPECT_TRUE(same_bits(c, again));
    EXPECT_TRUE(std::equal(c.begin(), c.begin() + 2 * kOutputs, plain.begin())) << "rows without outliers";
  });
}
}  // namespace
}  // namespace linnet
