// The text of a SentencePiece model's pieces.
#pragma once
#include <optional>
#include <span>
#include <string>
#include "data/text/sentencepiece/sentencepiece_normalizer.h"

namespace linnet {

class SentencePieceDecoder {
 public:
  // `file` outlives the decoder.
  SentencePieceDecoder(const SentencePieceModelFile& file, const std::string& path);
  // Ids are the model's own. Control pieces give nothing; bytes that are no UTF-8 give U+FFFD each.
  std::string decode(std::span<const int> ids) const;

 private:
  const SentencePieceModelFile& file_;
  std::optional<SentencePieceNormalizer> denormalizer_;
};

}  // namespace linnet
