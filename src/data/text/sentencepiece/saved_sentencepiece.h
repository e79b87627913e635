// SentencePiece models that were trained here, read without the SentencePiece library.
#pragma once
#include "data/text/sentencepiece/sentencepiece_pretrained.h"
#include "data/text/tokenizer.h"

namespace linnet {

// Text is normalized by SentencePiece's nmt_nfkc: Unicode NFKC, control characters removed, runs of blanks made one and
// blanks at either end dropped. Ordinary text comes back as it was ("…" comes back as "...", "²" as "2"), while
// composed and decomposed accents, full and half width, common and no-break spaces get the same tokens. A character
// that the model does not know is `unknown` and decodes to " ⁇ ".
class SavedSentencePiece : public Tokenizer {
 public:
  // `model` is a serialized ModelProto with our ids for the special tokens; `path` is for messages.
  SavedSentencePiece(std::string model, const std::string& path);

  std::string kind() const override { return "sentencepiece"; }
  int64_t vocab_size() const override { return tokenizer_.vocab_size(); }
  void encode(std::string_view line, std::vector<TokenId>& ids) const override { tokenizer_.encode(line, ids); }
  std::string decode(std::span<const TokenId> ids) const override;
  std::string piece(TokenId id) const override;
  void save(const std::string& folder, const std::string& stem) const override;

 private:
  void check(TokenId id) const;

  const std::string model_;
  const SentencePiecePretrained tokenizer_;
};

}  // namespace linnet
