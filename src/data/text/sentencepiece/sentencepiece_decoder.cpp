#include "data/text/sentencepiece/sentencepiece_decoder.h"
#include <charconv>
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {

// What a run of byte pieces spells.
void append_bytes(std::string& bytes, std::string& text) {
  for (size_t i = 0; i < bytes.size();) {
    const size_t length = utf8_length_at(bytes, i);
    const bool broken = length == 1 && static_cast<unsigned char>(bytes[i]) >= 0x80;
    text += broken ? std::string_view("\xEF\xBF\xBD") : std::string_view(bytes).substr(i, length);
    i += length;
  }
  bytes.clear();
}

void append_with_spaces(std::string_view piece, std::string& text) {
  for (size_t begin = 0; begin < piece.size();) {
    const size_t mark = std::min(piece.find(kSpaceSymbol, begin), piece.size());
    text += piece.substr(begin, mark - begin);
    if (mark < piece.size()) text += ' ';
    begin = mark + kSpaceSymbol.size();
  }
}

}  // namespace

SentencePieceDecoder::SentencePieceDecoder(const SentencePieceModelFile& file, const std::string& path) : file_(file) {
  if (!file.denormalization.charsmap.empty()) denormalizer_.emplace(file.denormalization, false, nullptr, path);
}

std::string SentencePieceDecoder::decode(std::span<const int> ids) const {
  using File = SentencePieceModelFile;
  const auto& spec = file_.normalization;
  std::string text, bytes;
  bool at_begin = true, space_seen = false;  // the space that was put before the text is left out once
  for (const int id : ids) {
    const File::Piece& piece = file_.pieces[static_cast<size_t>(id)];
    if (piece.type == File::kByte) {
      unsigned byte = 0;
      std::from_chars(piece.text.data() + 3, piece.text.data() + 5, byte, 16);
      bytes += static_cast<char>(byte);
      continue;
    }
    append_bytes(bytes, text);
    if (space_seen || !text.empty()) at_begin = false;
    space_seen = false;
    if (piece.type == File::kControl) continue;
    if (piece.type == File::kUnknown) {
      text += file_.unknown_surface;
      continue;
    }
    std::string_view rest = piece.text;
    if (at_begin && (spec.dummy_prefix || spec.remove_extra_spaces) && rest.starts_with(kSpaceSymbol)) {
      rest.remove_prefix(kSpaceSymbol.size());
      space_seen = !spec.remove_extra_spaces;  // else all spaces at the begin are left out
    }
    append_with_spaces(rest, text);
  }
  append_bytes(bytes, text);
  if (!denormalizer_) return text;
  std::string denormalized;
  denormalizer_->apply(text, denormalized, nullptr);
  return denormalized;
}

}  // namespace linnet
