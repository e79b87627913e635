// The Unicode that tokenizers, readers and metrics share. Works on UTF-8 bytes in place.
#pragma once
#include <cstddef>
#include <iterator>
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
std::vector<std::string_view> split_white_space(std::string_view text);

// The text without a leading byte order mark, as Windows editors write it.
inline std::string_view without_mark(std::string_view text) {
  return text.starts_with("\xEF\xBB\xBF") ? text.substr(3) : text;
}
}  // namespace linnet
