#include <gtest/gtest.h>
#include <vector>
#include "data/metrics/similarity.h"

namespace linnet {
namespace {
// The figures of scipy.stats: pearsonr and spearmanr.
TEST(Correlation, IsThatOfScipy) {
  const std::vector<double> a{1.0, 2.5, 2.5, 4.0, -3.0, 0.5}, b{0.2, 3.0, 1.0, 2.0, -1.5, 2.0};
  EXPECT_NEAR(pearson_correlation(a, b), 0.790069387746072, 1e-12);
  EXPECT_NEAR(spearman_correlation(a, b), 0.5882352941176471, 1e-12);
}

TEST(Correlation, OfAConstantIsZero) {
  const std::vector<double> a{1, 1, 1}, b{1, 2, 3};
  EXPECT_EQ(pearson_correlation(a, b), 0);
  EXPECT_EQ(spearman_correlation(a, b), 0);
  EXPECT_DOUBLE_EQ(pearson_correlation(b, b), 1);
}
}  // namespace
}  // namespace linnet
