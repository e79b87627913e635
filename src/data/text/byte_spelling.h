// Bytes written as text.
#pragma once
#include <string>
#include <string_view>

namespace linnet {

// GPT-2's printable spelling of bytes: each of the 256 has a character of its own, so that pieces of any bytes can be
// written down ("Ġ" for a space). Radford et al. 2019, bytes_to_unicode.

// Appends the spelling of the bytes.
void spell_bytes(std::string_view bytes, std::string& spelling);
inline std::string spelt(std::string_view bytes) {
  std::string spelling;
  spell_bytes(bytes, spelling);
  return spelling;
}
// Appends the bytes of a spelling; false, and nothing appended, when it holds any other character.
bool read_spelling(std::string_view spelling, std::string& bytes);

// The piece "<0xE2>" that stands for a byte where a vocabulary lacks a character.
std::string byte_piece(int byte);
int fallback_byte(std::string_view piece);  // the byte that it stands for, or -1

// Base64 (RFC 4648, with padding), in which tokenizer.json keeps SentencePiece's table of replacements.
std::string encode_base64(std::string_view bytes);
bool decode_base64(std::string_view text, std::string& bytes);  // false for anything else

}  // namespace linnet
