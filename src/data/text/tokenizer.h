// Text to token ids and back. Three kinds are trained here: characters, white-space separated words, SentencePiece.
// pretrained_tokenizer.h has those of model folders.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace linnet {
using TokenId = int32_t;  // number of a token in a vocabulary

// The ids of special tokens, equal in all tokenizers trained here. Pretrained ones have their own; -1: none.
struct SpecialTokens {
  TokenId pad = 0;      // fills rows up to the longest
  TokenId unknown = 1;  // for what the vocabulary lacks
  TokenId begin = 2;    // before the first token of a text
  TokenId end = 3;      // behind the last token of a text
};
constexpr TokenId kSpecialTokenCount = 4;  // of a tokenizer trained here

// Turns text into token ids and back.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;          // frees it
  virtual std::string kind() const = 0;    // "char", "word", "sentencepiece" or a pretrained one's kind
  virtual int64_t vocab_size() const = 0;  // number of tokens, with special ones
  // Appends the tokens of one line, without begin or end. Thread-safe.
  virtual void encode(std::string_view line, std::vector<TokenId>& ids) const = 0;
  // The same as a new list.
  std::vector<TokenId> encode(std::string_view line) const {
    std::vector<TokenId> ids;
    encode(line, ids);
    return ids;
  }
  // The text of tokens without pad, begin and end. Throws Error(kInternal) for an id outside [0, vocab_size).
  virtual std::string decode(std::span<const TokenId> ids) const = 0;
  virtual std::string piece(TokenId id) const = 0;  // one token as shown to people, also "<pad>" and the like
  // Writes folder/stem.{char,word,model} atomically: a temporary file, synced and renamed.
  virtual void save(const std::string& folder, const std::string& stem) const = 0;
  virtual SpecialTokens special() const { return {}; }  // ids of its special tokens
};

// Reads what save() wrote; the extension gives the kind. Throws Error(kUser) of one line for a missing, ambiguous,
// truncated or altered file.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& folder, const std::string& stem);

// How train_tokenizer() makes a vocabulary.
struct TokenizerOptions {
  std::string kind = "sentencepiece";  // "char", "word" or "sentencepiece"
  // Tokens with the special ones: exact for sentencepiece, a maximum for char and word.
  int64_t vocab_size = 8000;
  std::string model_type = "bpe";   // of sentencepiece: "bpe" or "unigram"
  double character_coverage = 1.0;  // of sentencepiece: the share of characters that get a token
  uint64_t seed = 0;                // of sentencepiece: samples lines if there are millions
  SpecialTokens special = {};       // of train_sentencepiece() alone: ids, -1 for none
};

// Builds a vocabulary from the training lines, by options and lines only, never by threads or machine. SentencePiece
// trains in a forked child (sentencepiece_trainer.cpp), so call this before worker threads start. Throws Error(kUser)
// for options out of range and for too few lines.
std::unique_ptr<Tokenizer> train_tokenizer(const TokenizerOptions& options, const std::vector<std::string>& lines);
}  // namespace linnet
