// The Unicode that tokenizers, readers and metrics share. Works on UTF-8 bytes in place.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace linnet {
// The offset of the first byte outside of well-formed UTF-8 (Unicode 15, table 3-7: no overlong forms, no surrogates,
// nothing above U+10FFFF), or npos.
size_t invalid_utf8_at(std::string_view text);
// The text with U+FFFD for each byte that is not part of a character.
std::string replace_invalid_utf8(std::string_view text);

// Bytes of the sequence at text[offset], at least 1: a malformed byte counts as one, so that any bytes can be walked.
size_t utf8_length_at(std::string_view text, size_t offset);

// The code point that starts at text[offset]; U+FFFD for a malformed byte.
char32_t utf8_code_point_at(std::string_view text, size_t offset);

struct Utf8Character {
  std::string_view text;
  size_t begin, end;  // its bytes in the text
  std::string_view bytes() const { return text.substr(begin, end - begin); }
  char32_t code_point() const { return utf8_code_point_at(text, begin); }
};
// An iterable of a text's characters; a malformed byte counts as one.
struct Utf8Characters {
  struct Iterator {
    Utf8Character character;
    const Utf8Character& operator*() const { return character; }
    Iterator& operator++() { return *this = {{character.text, character.end, end_of(character.text, character.end)}}; }
    bool operator!=(std::default_sentinel_t) const { return character.begin < character.text.size(); }
  };
  static size_t end_of(std::string_view text, size_t begin) {
    return begin < text.size() ? begin + utf8_length_at(text, begin) : begin;
  }
  Iterator begin() const { return {{text, 0, end_of(text, 0)}}; }
  std::default_sentinel_t end() const { return {}; }

  std::string_view text;
};
inline Utf8Characters utf8_characters(std::string_view text) { return {text}; }

std::vector<std::string_view> split_code_points(std::string_view text);  // views, one a code point

size_t count_code_points(std::string_view text);

std::string to_utf8(char32_t code_point);
inline std::string to_utf8(std::u32string_view text) {
  std::string bytes;
  for (const char32_t c : text) bytes += to_utf8(c);
  return bytes;
}

// Unicode's White_Space property: ASCII blanks, no-break space, U+2000..U+200A, ideographic space and so on.
bool is_white_space(char32_t code_point);

// The non-empty pieces of `text` between runs of white space, as views.
std::vector<std::string_view> split_white_space(std::string_view text, bool (*is_space)(char32_t) = is_white_space);

// The text without a leading byte order mark, as Windows editors write it.
inline std::string_view without_mark(std::string_view text) {
  return text.starts_with("\xEF\xBB\xBF") ? text.substr(3) : text;
}
// The lines of such a text, as views; they may end in \r\n, and the last one needs no end.
std::vector<std::string_view> split_lines(std::string_view text);

// Classes of characters as in the tokenizers library, whose tables are of several versions of Unicode: utf8proc's are
// restricted to what such a version assigned.
bool is_word_character(char32_t c);  // \w of regular expressions: letters, marks, digits, connectors
bool is_python_word(char32_t c);     // \w of Python's regular expressions: letters, numbers and the underscore
// White space of Python's str.split(): Unicode's, and ASCII's four information separators.
inline bool is_python_space(char32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

// BERT's classes, by Unicode 8's categories.
bool is_bert_control(char32_t c);      // Cc, Cf, Co, but tab and line ends; these are taken out
bool is_bert_punctuation(char32_t c);  // ASCII's and P*: a token of its own
bool is_bert_accent(char32_t c);       // Mn
bool is_cjk_ideograph(char32_t c);     // gets a space on either side
bool is_combining_mark(char32_t c);    // M* of Unicode 9: what StripAccents takes out

// Whether normalization, with tables of Unicode 9, ignores the character and starts afresh after it.
bool is_unknown_to_normalization(char32_t c);
// Appends the decomposition of Unicode 9: the canonical one (NFD), or with `compatible` that of NFKD.
void append_decomposition(char32_t c, bool compatible, std::u32string& text);
uint8_t combining_class(char32_t c);                      // 0 but for marks, which normalization sorts by it
void append_lowercase(char32_t c, std::u32string& text);  // appends its lowercase letters, whatever is around it

// The start of the character before text[end], `end` > 0; a malformed byte counts as one.
size_t utf8_start_before(std::string_view text, size_t end);

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
