// Regular expressions that cut text into words, matched by PCRE2's compiler.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>
#include "data/text/pretrained_tokenizer.h"

namespace linnet {

// What one thread needs to match with a pattern; reused from text to text.
class MatchScratch {
 public:
  MatchScratch();
  ~MatchScratch();

 private:
  friend class SplitPattern;
  struct State;
  std::unique_ptr<State> state_;
};

// Copies share the compiled expression. Characters have the classes that Unicode 16 gives them, as in the tokenizers
// that Linnet follows, whatever version PCRE2 was built for.
class SplitPattern {
 public:
  // An expression that PCRE2 refuses is a user error that shows it.
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
