#include "data/metrics/accuracy.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"

namespace linnet {
namespace {

TEST(Accuracy, CountsRowsOverBatchesAndLeavesOutPadding) {
  Accuracy accuracy;
  EXPECT_EQ(accuracy.value(), 0);
  accuracy.add(std::vector<int32_t>{1, 2, 3}, std::vector<int32_t>{1, 2, 0});
  accuracy.add(std::vector<int32_t>{0, 0, 5}, std::vector<int32_t>{0, -1, -1});
  EXPECT_EQ(accuracy.correct, 3);
  EXPECT_EQ(accuracy.total, 4);
  EXPECT_EQ(accuracy.value(), 0.75);
  EXPECT_THROW(accuracy.add(std::vector<int32_t>{1}, std::vector<int32_t>{}), Error);
}

}  // namespace
}  // namespace linnet
