// From tokens back to text; the names are those of tokenizer.json.
#pragma once
#include "data/text/pipeline/pipeline.h"

namespace linnet {

// GPT-2's alphabet of bytes read back; a token with other characters stands for itself.
class ByteLevelDecoder : public TokenDecoder {
 public:
  void apply(std::vector<std::string>& tokens) const override;
};

// A space before each token but the first and those that continue a word; `cleanup` takes the spaces before punctuation
// and English contractions away again.
class WordPieceDecoder : public TokenDecoder {
 public:
  WordPieceDecoder(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  void apply(std::vector<std::string>& tokens) const override;

 private:
  std::string prefix_;
  bool cleanup_;
};

// "▁" becomes a space, or nothing in the first token when one was put before the text.
class MetaspaceDecoder : public TokenDecoder {
 public:
  MetaspaceDecoder(std::string replacement, bool prepended)
      : replacement_(std::move(replacement)), prepended_(prepended) {}
  void apply(std::vector<std::string>& tokens) const override;

 private:
  std::string replacement_;
  bool prepended_;
};

class ReplaceDecoder : public TokenDecoder {
 public:
  ReplaceDecoder(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}
  void apply(std::vector<std::string>& tokens) const override;

 private:
  std::string from_, to_;
};

int fallback_byte(std::string_view token);  // the byte that "<0xE2>" spells, or -1

// Runs of <0xE2> become the characters they spell, or U+FFFD for each byte where they spell none.
class ByteFallbackDecoder : public TokenDecoder {
 public:
  void apply(std::vector<std::string>& tokens) const override;
};

class FuseDecoder : public TokenDecoder {
 public:
  void apply(std::vector<std::string>& tokens) const override;
};

// Up to `start` times `content` from the front of each token, up to `stop` times from its end.
class StripDecoder : public TokenDecoder {
 public:
  StripDecoder(std::string content, size_t start, size_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  void apply(std::vector<std::string>& tokens) const override;

 private:
  std::string content_;
  size_t start_, stop_;
};

// The suffix that ends a word becomes a space, or nothing in the last token.
class BpeDecoder : public TokenDecoder {
 public:
  explicit BpeDecoder(std::string suffix) : suffix_(std::move(suffix)) {}
  void apply(std::vector<std::string>& tokens) const override;

 private:
  std::string suffix_;
};

}  // namespace linnet
