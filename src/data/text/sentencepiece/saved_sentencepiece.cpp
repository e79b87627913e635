#include "data/text/sentencepiece/saved_sentencepiece.h"
#include "base/error.h"
#include "base/files.h"
#include "data/text/sentencepiece/sentencepiece_seal.h"

namespace linnet {

SavedSentencePiece::SavedSentencePiece(std::string model, const std::string& path)
    : model_(std::move(model)), tokenizer_(model_, path, SentencePieceOptions{}) {
  const SpecialTokens ids = special();
  const TokenRoles& roles = tokenizer_.roles();
  if (roles.pad != ids.pad || roles.unknown != ids.unknown || roles.begin != ids.begin || roles.end != ids.end)
    fail_user("tokenizer file '" + path + "' has other ids than 0, 1, 2, 3 for its special tokens");
}

std::string SavedSentencePiece::decode(std::span<const TokenId> ids) const {
  for (const TokenId id : ids) check(id);
  return tokenizer_.decode(ids, true);
}

std::string SavedSentencePiece::piece(TokenId id) const {
  check(id);
  return tokenizer_.piece(id);
}

void SavedSentencePiece::check(TokenId id) const {
  if (id < 0 || id >= vocab_size())
    fail_internal("token " + std::to_string(id) + " is outside the vocabulary of " + std::to_string(vocab_size()));
}

void SavedSentencePiece::save(const std::string& folder, const std::string& stem) const {
  write_file_atomically(folder + "/" + stem + ".model", seal_sentencepiece_model(model_));
}

}  // namespace linnet
