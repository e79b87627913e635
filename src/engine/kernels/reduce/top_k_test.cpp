#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>
#include "engine/kernels/reduce/reduce.h"
#include "kernel_testing.h"

namespace linnet {
namespace {
// Values and, after them, ids.
std::vector<float> by_sorting(int64_t rows, int64_t width, int64_t k, std::vector<float> x) {
  for (float& v : x)
    if (std::isnan(v)) v = -kInf;
  std::vector<float> values, ids;
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x.data() + r * width;
    std::vector<int32_t> order(static_cast<size_t>(width));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [row](int32_t a, int32_t b) { return row[a] > row[b]; });
    for (int64_t i = 0; i < k; ++i) {
      values.push_back(row[order[i]]);
      ids.push_back(static_cast<float>(order[i]));
    }
  }
  values.insert(values.end(), ids.begin(), ids.end());
  return values;
}

void expect_sorted_rows(int64_t rows, int64_t width, int64_t k, const std::vector<float>& x) {
  SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(width) + ", k " + std::to_string(k));
  const std::vector<float> want = by_sorting(rows, width, k, x);
  for_every_isa(
      [&](ThreadPool&) {
        std::vector<float> values(static_cast<size_t>(rows * k));
        std::vector<int32_t> ids(values.size());
        top_k_rows(rows, width, k, x.data(), values.data(), ids.data());
        values.insert(values.end(), ids.begin(), ids.end());
        return values;
      },
      [&](const std::vector<float>& got) { EXPECT_TRUE(same_bits(got, want)); });
}

TEST(TopK, EqualsSortingForAnyWidthAndCount) {
  for (const int64_t width : {1, 5, 16, 63, 64, 65, 200, 1021, 6000})
    for (const int64_t k : {1, 3, 12, 70, 500})
      if (k <= width) expect_sorted_rows(9, width, k, random_floats(9 * width, static_cast<uint32_t>(width + k)));
}

TEST(TopK, TiesGoToTheLowerIndex) {
  std::vector<float> x = random_floats(4 * 1000, 5);
  for (float& v : x) v = std::round(v);
  expect_sorted_rows(4, 1000, 7, x);
  expect_sorted_rows(4, 1000, 7, std::vector<float>(4000, 1.5f));
  expect_sorted_rows(4, 1000, 7, std::vector<float>(4000, -kInf));
}

TEST(TopK, NanIsNeverPreferred) {
  std::vector<float> x = random_floats(3 * 300, 6);
  for (size_t i = 0; i < 300; i += 3) x[i] = kNan;
  std::fill(x.begin() + 300, x.begin() + 600, kNan);
  x[450] = -3;
  expect_sorted_rows(3, 300, 5, x);
}
}  // namespace
}  // namespace linnet
