#include "data/metrics/f1.h"

#include <gtest/gtest.h>

namespace linnet {
namespace {

TEST(F1, OfTwoClassesIsThatOfTheSecond) {
  const int32_t predictions[] = {1, 1, 0, 0, 1, 0}, labels[] = {1, 0, 1, 0, 1, -1};
  EXPECT_DOUBLE_EQ(f1_score(predictions, labels, 2), 2 * 2.0 / (3 + 3));
}

TEST(F1, OfMoreIsTheMeanOverClasses) {
  const int32_t predictions[] = {0, 1, 2, 0}, labels[] = {0, 1, 1, 0};
  EXPECT_DOUBLE_EQ(f1_score(predictions, labels, 3), (1.0 + 2.0 / 3 + 0) / 3);
}

}  // namespace
}  // namespace linnet
