#include "data/text/sentencepiece/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include "base/error.h"
#include "base/files.h"
#include "data/text/sentencepiece/sentencepiece_seal.h"

namespace linnet {
SentencePieceTokenizer::SentencePieceTokenizer(std::string model, const std::string& path)
    : model_(std::move(model)), processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {
  const auto status = processor_->LoadFromSerializedProto(model_);
  if (!status.ok()) fail_user("tokenizer file '" + path + "' is no SentencePiece model");
  const SpecialTokens ids = special();
  if (processor_->pad_id() != ids.pad || processor_->unk_id() != ids.unknown || processor_->bos_id() != ids.begin ||
      processor_->eos_id() != ids.end)
    fail_user("tokenizer file '" + path + "' has other ids than 0, 1, 2, 3 for its special tokens");
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

int64_t SentencePieceTokenizer::vocab_size() const { return processor_->GetPieceSize(); }

void SentencePieceTokenizer::encode(std::string_view line, std::vector<TokenId>& ids) const {
  std::vector<int> pieces;
  const auto status = processor_->Encode(line, &pieces);
  if (!status.ok()) fail_internal("SentencePiece cannot encode: " + status.ToString());
  ids.insert(ids.end(), pieces.begin(), pieces.end());
}

std::string SentencePieceTokenizer::decode(std::span<const TokenId> ids) const {
  std::vector<int> pieces;
  pieces.reserve(ids.size());
  for (const TokenId id : ids) {
    check(id);
    if (id != special().pad && id != special().begin && id != special().end) pieces.push_back(id);
  }
  std::string text;
  const auto status = processor_->Decode(pieces, &text);
  if (!status.ok()) fail_internal("SentencePiece cannot decode: " + status.ToString());
  return text;
}

std::string SentencePieceTokenizer::piece(TokenId id) const {
  check(id);
  return processor_->IdToPiece(id);
}

void SentencePieceTokenizer::check(TokenId id) const {
  if (id < 0 || id >= vocab_size())
    fail_internal("token " + std::to_string(id) + " is outside the vocabulary of " + std::to_string(vocab_size()));
}

void SentencePieceTokenizer::save(const std::string& folder, const std::string& stem) const {
  write_file_atomically(folder + "/" + stem + ".model", seal_sentencepiece_model(model_));
}

}  // namespace linnet
