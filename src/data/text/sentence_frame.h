// What stands around a sentence's own tokens in a pair.
#pragma once
#include "data/text/tokenizer.h"

namespace linnet {

struct SentenceFrame {
  // Before and behind a source.
  std::vector<TokenId> source_begin = {}, source_end;
  // Before and behind a target: what decoding begins with, and what else is not generated; the end.
  std::vector<TokenId> target_begin, target_end;
  // The usual one: source, end; begin, target, end.
  static SentenceFrame of(const SpecialTokens& special) {
    return {.source_end = {special.end}, .target_begin = {special.begin}, .target_end = {special.end}};
  }
  bool operator==(const SentenceFrame&) const = default;
};

// Puts a sentence's tokens between the two; the tokens' end is cut off where there are more than `longest` (0: any)
// together. Whether it was.
inline bool frame_sentence(std::vector<TokenId>& ids, const std::vector<TokenId>& begin,
                           const std::vector<TokenId>& end, int64_t longest = 0) {
  const size_t frame = begin.size() + end.size(), most = static_cast<size_t>(longest);
  const bool cut = longest > 0 && ids.size() + frame > most;
  if (cut) ids.resize(most > frame ? most - frame : 0);
  ids.insert(ids.begin(), begin.begin(), begin.end());
  ids.insert(ids.end(), end.begin(), end.end());
  return cut;
}

}  // namespace linnet
