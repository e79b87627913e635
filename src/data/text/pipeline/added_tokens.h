// Tokens that are looked for in the text as they stand, before anything else is done to it: "<|endoftext|>", "[MASK]".
#pragma once
#include <bitset>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>
#include "data/text/pretrained_tokenizer.h"

namespace linnet {

struct AddedToken {
  TokenId id = kNoToken;
  std::string text;
  bool special = false;      // decoding can leave it out
  bool normalized = false;   // looked for after normalization (its text normalized, too), else before
  bool single_word = false;  // not inside of a word
  bool left_strip = false, right_strip = false;  // takes the white space beside it along
};

// A stretch of text, or the token that was found there.
struct TextSegment {
  size_t begin = 0, end = 0;
  TokenId id = kNoToken;  // kNoToken: text
};

class AddedTokenMatcher {
 public:
  AddedTokenMatcher() = default;
  // Looks for the tokens' texts; those that are empty are nowhere.
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

  // Appends the segments of text[begin, end), none of them empty, which together are all of it. Of the tokens that
  // begin at a place the longest counts.
  void split(std::string_view text, size_t begin, size_t end, std::vector<TextSegment>& segments) const;

 private:
  size_t match_at(std::string_view text, size_t at) const;  // place in tokens_, or npos

  std::vector<AddedToken> tokens_;
  std::bitset<256> first_;
  // By the first two bytes (one for tokens of one byte), the longest first.
  std::unordered_map<uint32_t, std::vector<size_t>> by_start_;
};

}  // namespace linnet
