// Regular expressions that cut text into words, compiled by PCRE2.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>
#include "data/text/pretrained_tokenizer.h"

namespace linnet {
// Per-thread scratch memory for one pattern, reused for all texts.
class MatchScratch {
 public:
  MatchScratch();
  ~MatchScratch();

 private:
  friend class SplitPattern;
  struct State;
  std::unique_ptr<State> state_;
};

// Copies share the compiled expression. Characters have their classes of Unicode 16, as in the tokenizers that Linnet
// follows, whatever PCRE2's version.
class SplitPattern {
 public:
  // User error showing an expression that PCRE2 refuses.
  explicit SplitPattern(const std::string& expression, const std::string& where = "");
  static SplitPattern literal(std::string_view text);  // matches exactly these bytes

  // Replaces `matches` by all there are, left to right, without empty ones. Bytes that are no UTF-8 match nothing, and
  // nothing matches across them.
  void find_all(std::string_view text, MatchScratch& scratch, std::vector<TextRange>& matches) const;

 private:
  struct Code;
  void find_valid(std::string_view text, size_t base, MatchScratch& scratch, std::vector<TextRange>& matches) const;

  std::shared_ptr<const Code> code_;
};
}  // namespace linnet
