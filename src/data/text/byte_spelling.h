// Bytes written as text.
#pragma once
#include <string>
#include <string_view>

namespace linnet {
// GPT-2's printable spelling of bytes: a character for each of the 256 ("Ġ" for a space). Radford et al. 2019.

void spell_bytes(std::string_view bytes, std::string& spelling);
inline std::string spelt(std::string_view bytes) {
  std::string spelling;
  spell_bytes(bytes, spelling);
  return spelling;
}
// Appends the bytes of a spelling; false, appending nothing, if it holds any other character.
bool read_spelling(std::string_view spelling, std::string& bytes);

// The piece "<0xE2>" for a byte of a character that a vocabulary lacks.
std::string byte_piece(int byte);
int fallback_byte(std::string_view piece);  // the byte that it stands for, or -1

// Base64 (RFC 4648, with padding), as in tokenizer.json for SentencePiece's table of replacements.
std::string encode_base64(std::string_view bytes);
bool decode_base64(std::string_view text, std::string& bytes);  // false for anything else
}  // namespace linnet
