// The tokens of words seen before: most words of a text are a few thousand different ones.
#pragma once
#include <array>
#include <cstring>
#include <vector>
#include "data/text/pipeline/subword_model.h"

namespace linnet {

// A fixed table of 64-byte lines; a word goes to the one place that its hash names and drives out what is there. Words
// longer than 28 bytes, or of more than 6 tokens, are not kept. One thread's.
class WordCache {
 public:
  static constexpr size_t kBytes = 28;  // of the longest word that is kept

  // Appends the tokens; false when the word is not there.
  bool find(std::string_view word, uint64_t hash, std::vector<ModelToken>& tokens) const {
    const Line& line = lines_[hash % kLines];
    if (line.tag != static_cast<uint32_t>(hash >> 32) || line.length != word.size() || word.size() > kBytes ||
        std::memcmp(line.bytes.data(), word.data(), word.size()) != 0)
      return false;
    for (size_t i = 0; i < line.count; ++i) tokens.push_back({line.ids[i], line.ends[i]});
    return true;
  }
  void keep(std::string_view word, uint64_t hash, const ModelToken* tokens, size_t count) {
    if (word.size() > kBytes || count > kTokens) return;
    Line& line = lines_[hash % kLines];
    line.tag = static_cast<uint32_t>(hash >> 32);
    line.length = static_cast<uint8_t>(word.size());
    line.count = static_cast<uint8_t>(count);
    std::memcpy(line.bytes.data(), word.data(), word.size());
    for (size_t i = 0; i < count; ++i) {
      line.ids[i] = tokens[i].id;
      line.ends[i] = static_cast<uint8_t>(tokens[i].end);
    }
  }

 private:
  static constexpr size_t kLines = 1 << 14, kTokens = 6;
  struct Line {
    uint32_t tag = 0;
    uint8_t length = 0, count = 0;  // length 0: nothing here
    std::array<char, kBytes> bytes;
    std::array<uint8_t, kTokens> ends;
    std::array<TokenId, kTokens> ids;
  };
  static_assert(sizeof(Line) == 64);
  std::vector<Line> lines_{kLines};
};

}  // namespace linnet
