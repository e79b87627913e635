#include <gtest/gtest.h>
#include <cmath>
#include "data/metrics/text_scores.h"

namespace linnet {
namespace {
TEST(WordCount, SplitsAtAnyWhiteSpace) {
  EXPECT_EQ(count_words(""), 0);
  EXPECT_EQ(count_words(" \n\t"), 0);
  EXPECT_EQ(count_words("one"), 1);
  EXPECT_EQ(count_words(" = Robert Boulter = \r\n"), 4);
  EXPECT_EQ(count_words("a\u00a0b\u3000c\n\nd"), 4);
  EXPECT_EQ(count_words("na\u00efve \u00fcber"), 2);
}

TEST(Perplexity, IsTheExponentialOfTheMean) {
  EXPECT_DOUBLE_EQ(perplexity(2 * std::log(50.0), 2), 50);
  EXPECT_TRUE(std::isinf(perplexity(1e6, 1)));
  EXPECT_TRUE(std::isnan(perplexity(1, 0)));
}
}  // namespace
}  // namespace linnet
