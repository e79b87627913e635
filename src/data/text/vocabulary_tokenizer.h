// The char and word tokenizers: a list of tokens, looked up unit by unit.
#pragma once
#include <functional>
#include <unordered_map>
#include "data/text/tokenizer.h"

namespace linnet {

enum class TextUnit {
  kCharacter,  // one code point; the text is taken as it is, without Unicode normalization
  kWord,       // what stands between white space
};

// Id 4 + i is tokens[i]. A unit that is not in the list becomes `unknown`, which decodes to U+FFFD among characters and
// to "<unk>" among words. Words decode joined by one space.
class VocabularyTokenizer : public Tokenizer {
 public:
  VocabularyTokenizer(TextUnit unit, std::vector<std::string> tokens);

  std::string kind() const override;
  int64_t vocab_size() const override { return kSpecialTokenCount + static_cast<int64_t>(tokens_.size()); }
  void encode(std::string_view line, std::vector<TokenId>& ids) const override;
  std::string decode(std::span<const TokenId> ids) const override;
  std::string piece(TokenId id) const override;
  void save(const std::string& folder, const std::string& stem) const override;

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;  // look up a view without making a string of it
  };

  TextUnit unit_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, TokenId, Hash, std::equal_to<>> ids_;
};

// The most frequent units of the lines, at most vocab_size - 4 of them; equal counts in the order of their bytes.
std::unique_ptr<Tokenizer> train_vocabulary(TextUnit unit, int64_t vocab_size, const std::vector<std::string>& lines);

// The file is text: "linnet-tokenizer 1 char 96", then 96 tokens, one a line, with \\ \n \r \t \s (space) escaped.
std::string format_vocabulary(TextUnit unit, std::span<const std::string> tokens);

// `path` is for messages only; anything but what format_vocabulary() writes is a user error that names the line.
std::unique_ptr<Tokenizer> parse_vocabulary(TextUnit unit, std::string_view bytes, const std::string& path);

}  // namespace linnet
