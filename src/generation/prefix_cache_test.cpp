#include "generation/prefix_cache.h"
#include <gtest/gtest.h>
#include <map>
#include <random>

namespace linnet {
namespace {
using Ids = std::vector<int32_t>;
constexpr auto kBlock = static_cast<size_t>(PrefixCache::kBlock);

// `blocks` blocks, each of one token.
Ids text_of(const std::vector<int32_t>& blocks) {
  Ids tokens;
  for (const int32_t token : blocks) tokens.insert(tokens.end(), kBlock, token);
  return tokens;
}

TEST(PrefixCache, FindsTheLongestBeginningThatLeavesAToken) {
  PrefixCache cache(10);
  EXPECT_TRUE(cache.find(text_of({1, 2})).empty());
  const auto added = cache.keep(text_of({1, 2, 3}));
  ASSERT_EQ(added.size(), 3u);
  EXPECT_EQ(added[2].first, 2 * PrefixCache::kBlock);
  EXPECT_EQ(cache.used(), 3);
  EXPECT_EQ(cache.find(text_of({1, 2, 3})).size(), 2u);  // the last token has to be computed
  EXPECT_EQ(cache.find(text_of({1, 2, 3, 4})), (std::vector<int64_t>{added[0].block, added[1].block, added[2].block}));
  EXPECT_EQ(cache.find(text_of({1, 3, 3})).size(), 1u);
  EXPECT_TRUE(cache.find(text_of({2, 3})).empty());  // the same tokens elsewhere are not the same
  Ids close = text_of({1, 2});
  close[kBlock - 1] = 9;
  EXPECT_TRUE(cache.find(close).empty());
  EXPECT_TRUE(cache.find({}).empty());
  EXPECT_TRUE(cache.keep(Ids(kBlock - 1, 1)).empty());  // no whole block
}

TEST(PrefixCache, DropsWhatWasUsedLongestAgoAndNeverABlockBeforeItsFollowers) {
  PrefixCache cache(4);
  cache.keep(text_of({1, 2, 3}));
  cache.keep(text_of({5}));
  cache.find(text_of({1, 2, 9}));  // 5 is now the oldest but for block 3 of the first text
  cache.keep(text_of({6}));
  EXPECT_EQ(cache.find(text_of({1, 2, 3, 4})).size(), 2u);
  EXPECT_EQ(cache.find(text_of({5, 9})).size(), 1u);
  EXPECT_EQ(cache.find(text_of({6, 9})).size(), 1u);
}

TEST(PrefixCache, ATextThatHasNoRoomKeepsItsBeginning) {
  PrefixCache cache(3);
  cache.keep(text_of({7}));
  EXPECT_EQ(cache.keep(text_of({1, 2, 3, 4, 5})).size(), 3u);
  EXPECT_EQ(cache.find(text_of({1, 2, 3, 4, 5})).size(), 3u);
  EXPECT_TRUE(cache.find(text_of({7, 1})).empty());
  PrefixCache none(0);
  EXPECT_TRUE(none.keep(text_of({1})).empty());
}

// What is found is what was kept: blocks hold the tokens that they were last filled with.
TEST(PrefixCache, RandomTextsFindTheirOwnTokens) {
  std::mt19937 random(3);
  PrefixCache cache(12);
  std::map<int64_t, Ids> held;  // by block: all tokens up to its end
  int64_t found = 0;
  for (int i = 0; i < 3000; ++i) {
    std::vector<int32_t> blocks(1 + random() % 6);
    for (int32_t& block : blocks) block = static_cast<int32_t>(random() % 3);
    Ids tokens = text_of(blocks);
    tokens.resize(tokens.size() - random() % kBlock);
    size_t end = 0;
    for (const int64_t block : cache.find(tokens)) {
      end += kBlock, ++found;
      ASSERT_EQ(held.at(block), Ids(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(end)));
    }
    ASSERT_LT(end, tokens.size());
    for (const PrefixCache::NewBlock& added : cache.keep(tokens))
      held[added.block] = Ids(tokens.begin(),
          tokens.begin() + static_cast<std::ptrdiff_t>(added.first) + static_cast<std::ptrdiff_t>(kBlock));
  }
  EXPECT_GT(found, 1000);
  EXPECT_EQ(cache.used(), 12);
}
}  // namespace
}  // namespace linnet
