#include "text/sentencepiece/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include "base/error.h"
#include "base/files.h"

namespace linnet {
namespace {

// Protobuf field 1000 (ModelProto sets 200 and above aside for others), length-delimited: the tag 1000 << 3 | 2 as a
// varint, the length, and then "linnet1:" with 16 hexadecimal digits of checksum.
constexpr std::string_view kSealStart = "\xC2\x3E\x18linnet1:";
constexpr size_t kDigits = 16;

std::string checksum(std::string_view bytes) {  // FNV-1a, 64 bits
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  std::string digits;
  for (int shift = 60; shift >= 0; shift -= 4) digits += "0123456789abcdef"[(hash >> shift) & 15u];
  return digits;
}

}  // namespace

std::string seal_sentencepiece_model(std::string_view model) {
  return std::string(model) + std::string(kSealStart) + checksum(model);
}

std::string open_sentencepiece_model(std::string_view bytes, const std::string& path) {
  const size_t seal = kSealStart.size() + kDigits;
  if (bytes.size() > seal) {
    const std::string_view model = bytes.substr(0, bytes.size() - seal);
    if (bytes.substr(model.size()) == std::string(kSealStart) + checksum(model)) return std::string(model);
  }
  fail_user("tokenizer file '" + path + "' is truncated, damaged or was not written by Linnet");
}

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
