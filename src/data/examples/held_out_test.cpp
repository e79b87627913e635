#include <gtest/gtest.h>
#include <algorithm>
#include "data/examples/batch.h"

namespace linnet {
namespace {
int64_t count(const std::vector<bool>& chosen, const std::vector<int32_t>& labels, int32_t label) {
  int64_t sum = 0;
  for (size_t i = 0; i < labels.size(); ++i) sum += chosen[i] && labels[i] == label;
  return sum;
}

TEST(HeldOut, TakesTheShareOfEachClass) {
  std::vector<int32_t> labels(1000, 0);
  std::fill(labels.begin() + 900, labels.end(), 1);
  const std::vector<bool> chosen = choose_held_out(labels, 0.1, 1);
  EXPECT_EQ(count(chosen, labels, 0), 90);
  EXPECT_EQ(count(chosen, labels, 1), 10);
  EXPECT_EQ(choose_held_out(labels, 0.1, 1), chosen);
  EXPECT_NE(choose_held_out(labels, 0.1, 2), chosen);
}

TEST(HeldOut, SmallClassesKeepAtLeastHalf) {
  const std::vector<int32_t> labels{0, 1, 1, 2, 2, 2, 3, 3, 3, 3};
  const std::vector<bool> few = choose_held_out(labels, 0.1, 1), many = choose_held_out(labels, 0.9, 1);
  const int64_t few_of[] = {0, 0, 1, 1}, many_of[] = {0, 1, 1, 2};
  for (int32_t label = 0; label < 4; ++label) {
    EXPECT_EQ(count(few, labels, label), few_of[label]) << label;
    EXPECT_EQ(count(many, labels, label), many_of[label]) << label;
  }
}

TEST(HeldOut, EqualTextsStayOnOneSide) {
  std::vector<bool> chosen{false, true, false, true, false, false};
  keep_together(chosen, {1, 2, 3, 1, 2, 4});
  EXPECT_EQ(chosen, (std::vector<bool>{false, true, false, false, true, false}));
  // A group that is too large is learned, and another example takes its place.
  std::vector<bool> large{true, false, false, false};
  keep_together(large, {1, 1, 1, 2});
  EXPECT_EQ(large, (std::vector<bool>{false, false, false, true}));
  for (const std::vector<uint64_t>& keys : {std::vector<uint64_t>{1, 2}, {1, 1}}) {
    std::vector<bool> same{true, false};
    keep_together(same, keys);
    EXPECT_EQ(same, (std::vector<bool>{true, false}));
  }
}
}  // namespace
}  // namespace linnet
