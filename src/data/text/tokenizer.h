// Text to token ids and back. Three kinds are trained here: characters, white-space separated words, SentencePiece.
// Those that model folders carry are in pretrained_tokenizer.h.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace linnet {

// The number of a token in a vocabulary.
using TokenId = int32_t;

// The ids of special tokens: the same in every tokenizer trained here, so that batches and models need not ask. A
// pretrained one has its own, and -1 for those it lacks.
struct SpecialTokens {
  // Fills rows up to the length of the longest.
  TokenId pad = 0;
  // Stands for what the vocabulary does not have.
  TokenId unknown = 1;
  // Before the first token of a text.
  TokenId begin = 2;
  // Behind the last token of a text.
  TokenId end = 3;
};
// The number of special tokens of a tokenizer trained here.
constexpr TokenId kSpecialTokenCount = 4;

// Turns text into token ids and back.
class Tokenizer {
 public:
  // Frees it.
  virtual ~Tokenizer() = default;
  // "char", "word" or "sentencepiece", or a pretrained one's kind.
  virtual std::string kind() const = 0;
  // The number of tokens, with the special ones.
  virtual int64_t vocab_size() const = 0;
  // Appends the tokens of one line, without begin or end. May be called from several threads at once.
  virtual void encode(std::string_view line, std::vector<TokenId>& ids) const = 0;
  // The same as a list of its own.
  std::vector<TokenId> encode(std::string_view line) const {
    std::vector<TokenId> ids;
    encode(line, ids);
    return ids;
  }
  // The text of tokens without pad, begin and end. Throws Error(kInternal) for an id outside [0, vocab_size).
  virtual std::string decode(std::span<const TokenId> ids) const = 0;
  // One token as shown to people, "<pad>" and the like included.
  virtual std::string piece(TokenId id) const = 0;
  // Writes folder/stem.{char,word,model}: a temporary file, synced and renamed, so that a crash leaves none or all.
  virtual void save(const std::string& folder, const std::string& stem) const = 0;
  // The ids of its special tokens.
  virtual SpecialTokens special() const { return {}; }
};

// Reads what save() wrote; the file's extension tells the kind. A missing, ambiguous, truncated or altered file is an
// Error(kUser) of one line.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& folder, const std::string& stem);

// How train_tokenizer() makes a vocabulary.
struct TokenizerOptions {
  // "char", "word" or "sentencepiece".
  std::string kind = "sentencepiece";
  // Tokens with the special ones: exact for sentencepiece, a maximum for char and word.
  int64_t vocab_size = 8000;
  // Of sentencepiece: "bpe" or "unigram".
  std::string model_type = "bpe";
  // Of sentencepiece: the share of the characters that get a token of their own.
  double character_coverage = 1.0;
  // Of sentencepiece: decides which lines are looked at when there are millions.
  uint64_t seed = 0;
  // Of train_sentencepiece() alone: the ids of special tokens, -1 for none.
  SpecialTokens special = {};
};

// Builds a vocabulary from the training lines. Depends on the options and lines only, never on threads or the machine.
// SentencePiece trains in a forked child (see sentencepiece_trainer.cpp), so call this before worker threads start.
// Throws Error(kUser) for options out of range and for too few lines.
std::unique_ptr<Tokenizer> train_tokenizer(const TokenizerOptions& options, const std::vector<std::string>& lines);

}  // namespace linnet
