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

using TokenId = int32_t;

// The same ids in every tokenizer trained here, so that batches and models need not ask. A pretrained one has its own,
// and -1 for those it lacks.
struct SpecialTokens {
  TokenId pad = 0, unknown = 1, begin = 2, end = 3;
};
constexpr TokenId kSpecialTokenCount = 4;

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string kind() const = 0;    // "char" | "word" | "sentencepiece", or a pretrained one's
  virtual int64_t vocab_size() const = 0;  // with the special tokens
  // Appends the tokens of one line, without begin or end. May be called from several threads at once.
  virtual void encode(std::string_view line, std::vector<TokenId>& ids) const = 0;
  // Skips pad, begin and end; an id outside [0, vocab_size) is an internal error.
  virtual std::string decode(std::span<const TokenId> ids) const = 0;
  virtual std::string piece(TokenId id) const = 0;  // one token as shown to people, "<pad>" and the like included
  // Writes folder/stem.{char,word,model}: a temporary file, synced and renamed, so that a crash leaves none or all.
  virtual void save(const std::string& folder, const std::string& stem) const = 0;
  virtual SpecialTokens special() const { return {}; }
};

// Reads what save() wrote; the file's extension tells the kind. A missing, ambiguous, truncated or altered file is a
// user error of one line.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& folder, const std::string& stem);

struct TokenizerOptions {
  std::string kind = "sentencepiece";  // char | word | sentencepiece
  int64_t vocab_size = 8000;           // with the special tokens: exact for sentencepiece, a maximum for char and word
  std::string model_type = "bpe";      // sentencepiece: bpe | unigram
  double character_coverage = 1.0;     // sentencepiece: the share of the characters that get a token of their own
  uint64_t seed = 0;                   // sentencepiece: which lines are looked at when there are millions
  SpecialTokens special = {};          // of train_sentencepiece() alone: their ids, -1 for none
};

// Builds a vocabulary from the training lines. Depends on the options and lines only, never on threads or the machine.
// SentencePiece trains in a forked child (see sentencepiece_trainer.cpp), so call this before worker threads start.
std::unique_ptr<Tokenizer> train_tokenizer(const TokenizerOptions& options, const std::vector<std::string>& lines);

}  // namespace linnet
