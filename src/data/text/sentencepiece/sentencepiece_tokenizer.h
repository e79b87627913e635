// Subword tokens through the SentencePiece library (Kudo and Richardson 2018), which training uses. What it saved is
// read without it (saved_sentencepiece.h).
#pragma once
#include "data/text/tokenizer.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace linnet {

// Text is normalized by SentencePiece's nmt_nfkc: Unicode NFKC, control characters removed, runs of blanks made one and
// blanks at either end dropped. Ordinary text comes back as it was ("…" comes back as "...", "²" as "2"), while
// composed and decomposed accents, full and half width, common and no-break spaces get the same tokens. A character
// that the model does not know is `unknown` and decodes to " ⁇ ".
class SentencePieceTokenizer : public Tokenizer {
 public:
  // `model` is a serialized ModelProto with our ids for the special tokens; `path` is for messages.
  SentencePieceTokenizer(std::string model, const std::string& path);
  ~SentencePieceTokenizer() override;

  std::string kind() const override { return "sentencepiece"; }
  int64_t vocab_size() const override;
  void encode(std::string_view line, std::vector<TokenId>& ids) const override;
  std::string decode(std::span<const TokenId> ids) const override;
  std::string piece(TokenId id) const override;
  void save(const std::string& folder, const std::string& stem) const override;

 private:
  void check(TokenId id) const;

  std::string model_;
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
};

// Trains a model and returns it serialized. The trainer takes many times the corpus in memory, which would stay in this
// process's high-water mark, so it runs in a forked child that hands back the model through a pipe and whose output is
// kept off the terminal. Must be called while this process has a single thread: the child of a process with more
// inherits their locks but not the threads that would release them.
std::string train_sentencepiece(const TokenizerOptions& options, const std::vector<std::string>& lines);

}  // namespace linnet
