#include "data/text/byte_trie.h"
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <string>

namespace linnet {
namespace {
int32_t value_of(const ByteTrie& trie, std::string_view key) {
  uint32_t node = ByteTrie::kRoot;
  for (const char c : key) {
    node = trie.next(node, static_cast<unsigned char>(c));
    if (node == ByteTrie::kNowhere) return ByteTrie::kNoValue;
  }
  return trie.value(node);
}

// Every key has its value, and no step leads where no key goes.
void expect_keys(const std::map<std::string, int32_t>& want) {
  const ByteTrie trie(ByteTrie::Keys(want.begin(), want.end()));
  for (const auto& [key, value] : want) {
    ASSERT_EQ(value_of(trie, key), key.empty() ? ByteTrie::kNoValue : value);
    uint32_t node = ByteTrie::kRoot;
    for (size_t i = 0; i <= key.size(); ++i) {
      const std::string before = key.substr(0, i);
      for (int byte = 0; byte < 256; ++byte) {
        const std::string longer = before + static_cast<char>(byte);
        const auto at_least = want.lower_bound(longer);
        const bool leads = at_least != want.end() && at_least->first.starts_with(longer);
        ASSERT_EQ(trie.next(node, static_cast<unsigned char>(byte)) != ByteTrie::kNowhere, leads) << i << " " << byte;
      }
      if (i < key.size()) node = trie.next(node, static_cast<unsigned char>(key[i]));
    }
  }
}

TEST(ByteTrie, FindsItsKeysAndNothingElse) {
  expect_keys({});
  expect_keys({{"", 3}, {"a", 1}, {std::string(1, '\0'), 2}, {"ab\xFF", 0}});
  std::map<std::string, int32_t> all;  // the root has every child there can be, as has one of them
  for (int byte = 0; byte < 256; ++byte) {
    all[std::string(1, static_cast<char>(byte))] = byte;
    all[std::string("x") + static_cast<char>(byte)] = 1000 + byte;
  }
  expect_keys(all);
}

TEST(ByteTrie, ManyRandomKeys) {
  std::mt19937 random(1);
  for (const int letters : {2, 7, 256}) {
    std::map<std::string, int32_t> keys;
    for (int i = 0; i < 2000; ++i) {
      std::string key;
      for (size_t length = 1 + random() % 8; key.size() < length;)
        key += static_cast<char>(random() % static_cast<unsigned>(letters));
      keys[key] = i;
    }
    expect_keys(keys);
  }
}

TEST(ByteTrie, OfTwoEqualKeysTheFirstCounts) {
  const ByteTrie trie({{"a", 5}, {"b", 6}, {"a", 7}});
  EXPECT_EQ(value_of(trie, "a"), 5);
}
}  // namespace
}  // namespace linnet
