#include "data/text/sentencepiece/sentencepiece_model.h"
#include <algorithm>
#include "base/error.h"
#include "data/text/sentencepiece/sentencepiece_normalizer.h"

namespace linnet {

SentencePieceModel::SentencePieceModel(const SentencePieceModelFile& file, const std::string& path) : file_(file) {
  for (const SentencePieceModelFile::Piece& piece : file.pieces) {
    const TokenId id = vocabulary_.size();
    if (!vocabulary_.add(piece.text, id)) fail_user("'" + path + "' has too many pieces");
    if (piece.type == SentencePieceModelFile::kUnknown) unknown_ = id;
    std::string_view rest = piece.text;
    while (rest.starts_with(kSpaceSymbol)) rest.remove_prefix(kSpaceSymbol.size());
    if (rest.find(kSpaceSymbol) != std::string_view::npos) has_words_ = false;
  }
}

size_t SentencePieceModel::word_end(std::string_view text, size_t begin) const {
  if (!has_words_) return text.size();
  while (text.substr(begin).starts_with(kSpaceSymbol)) begin += kSpaceSymbol.size();
  return std::min(text.find(kSpaceSymbol, begin), text.size());
}

}  // namespace linnet
