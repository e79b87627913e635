#include <gtest/gtest.h>
#include "base/error.h"
#include "data/metrics/text_scores.h"

namespace linnet {
namespace {
TEST(ExactMatch, OuterWhiteSpaceDoesNotCount) {
  EXPECT_TRUE(is_exact_match("2019-03-07\r", "2019-03-07"));
  EXPECT_TRUE(is_exact_match(" a b \n", "\ta b\xC2\xA0"));
  EXPECT_TRUE(is_exact_match("", " "));
  EXPECT_FALSE(is_exact_match("a  b", "a b"));
  EXPECT_FALSE(is_exact_match("A", "a"));
  EXPECT_FALSE(is_exact_match("a", ""));
}

TEST(ExactMatch, IsAFraction) {
  EXPECT_EQ(exact_match({"a", "b", "c", "d"}, {"a", "x", "c ", "D"}), 0.5);
  EXPECT_EQ(exact_match({}, {}), 0);
  EXPECT_THROW(exact_match({"a"}, {}), Error);
}
}  // namespace
}  // namespace linnet
