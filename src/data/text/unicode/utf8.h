// The little of Unicode that tokenizers, readers and metrics share. Everything works on UTF-8 bytes in place.
#pragma once
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace linnet {

// The offset of the first byte that does not begin or continue a well-formed UTF-8 sequence (Unicode 15, table 3-7:
// no overlong forms, no surrogates, nothing above U+10FFFF), or npos when the text is valid.
size_t invalid_utf8_at(std::string_view text);
// The text with U+FFFD for each byte that is not part of a character.
std::string replace_invalid_utf8(std::string_view text);

// Bytes of the sequence that starts at text[offset], at least 1. A malformed byte counts as a sequence of its own, so
// that any bytes whatever can be walked to their end.
size_t utf8_length_at(std::string_view text, size_t offset);

// The code point that starts at text[offset]; U+FFFD for a malformed byte.
char32_t utf8_code_point_at(std::string_view text, size_t offset);

struct Utf8Character {
  std::string_view text;
  size_t begin, end;  // its bytes in the text
  std::string_view bytes() const { return text.substr(begin, end - begin); }
  char32_t code_point() const { return utf8_code_point_at(text, begin); }
};
// The characters of a text, as a loop goes over them; a malformed byte is one of its own.
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

// Views into `text`, one a code point.
std::vector<std::string_view> split_code_points(std::string_view text);

size_t count_code_points(std::string_view text);

std::string to_utf8(char32_t code_point);
inline std::string to_utf8(std::u32string_view text) {
  std::string bytes;
  for (const char32_t c : text) bytes += to_utf8(c);
  return bytes;
}

// The White_Space property of Unicode: ASCII blanks, no-break space, U+2000..U+200A, ideographic space and so on.
bool is_white_space(char32_t code_point);

// The pieces of `text` between runs of white space; views into `text`, never empty.
std::vector<std::string_view> split_white_space(std::string_view text);

// The text behind the byte order mark that editors on Windows put before it.
inline std::string_view without_mark(std::string_view text) {
  return text.starts_with("\xEF\xBB\xBF") ? text.substr(3) : text;
}

}  // namespace linnet
