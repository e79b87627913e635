#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {
// Length of the well-formed sequence at text[i], or 0. The second byte's range depends on the first, which excludes
// overlong forms (E0, F0), surrogates (ED) and values above U+10FFFF (F4).
size_t well_formed_length(std::string_view text, size_t i) {
  const auto byte = [&](size_t k) -> unsigned { return k < text.size() ? static_cast<unsigned char>(text[k]) : 0u; };
  const auto continues = [&](size_t k) { return (byte(k) & 0xC0u) == 0x80u; };
  const unsigned first = byte(i), second = byte(i + 1);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  if (!continues(i + 1)) return 0;
  if (first < 0xE0) return 2;
  if (first < 0xF0) {
    if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F)) return 0;
    return continues(i + 2) ? 3 : 0;
  }
  if ((first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) return 0;
  return continues(i + 2) && continues(i + 3) ? 4 : 0;
}
}  // namespace

size_t invalid_utf8_at(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    if (static_cast<unsigned char>(text[i]) < 0x80) {
      ++i;
      continue;
    }
    const size_t length = well_formed_length(text, i);
    if (length == 0) return i;
    i += length;
  }
  return std::string_view::npos;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t length = well_formed_length(text, i);
    if (length == 0) out += "\xEF\xBF\xBD", ++i;
    else out += text.substr(i, length), i += length;
  }
  return out;
}

size_t utf8_length_at(std::string_view text, size_t offset) {
  const size_t length = well_formed_length(text, offset);
  return length == 0 ? 1 : length;
}

char32_t utf8_code_point_at(std::string_view text, size_t offset) {
  const auto bits = [&](size_t k) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[offset + k]) & 0x3F);
  };
  const auto first = static_cast<unsigned char>(text[offset]);
  switch (well_formed_length(text, offset)) {
    case 1: return first;
    case 2: return (first & 0x1Fu) << 6 | bits(1);
    case 3: return (first & 0x0Fu) << 12 | bits(1) << 6 | bits(2);
    case 4: return (first & 0x07u) << 18 | bits(1) << 12 | bits(2) << 6 | bits(3);
    default: return 0xFFFD;
  }
}

std::vector<std::string_view> split_code_points(std::string_view text) {
  std::vector<std::string_view> parts;
  parts.reserve(text.size());
  for (const Utf8Character& character : utf8_characters(text)) parts.push_back(character.bytes());
  return parts;
}

size_t count_code_points(std::string_view text) {
  size_t count = 0;
  for ([[maybe_unused]] const Utf8Character& character : utf8_characters(text)) ++count;
  return count;
}

std::string to_utf8(char32_t c) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80u | ((c >> shift) & 0x3Fu)); };
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xC0u | (c >> 6)), tail(0)};
  if (c < 0x10000) return {static_cast<char>(0xE0u | (c >> 12)), tail(6), tail(0)};
  return {static_cast<char>(0xF0u | (c >> 18)), tail(12), tail(6), tail(0)};
}

bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

std::vector<std::string_view> split_white_space(std::string_view text) {
  std::vector<std::string_view> words;
  size_t start = 0;
  for (const Utf8Character& character : utf8_characters(text)) {
    if (!is_white_space(character.code_point())) continue;
    if (character.begin > start) words.push_back(text.substr(start, character.begin - start));
    start = character.end;
  }
  if (start < text.size()) words.push_back(text.substr(start));
  return words;
}
}  // namespace linnet
