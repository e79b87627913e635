#include "data/text/unicode/utf8.h"
#include <array>
#include "base/functions.h"
#include "base/text.h"

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

constexpr char32_t kLastSpelling = 0x143;

struct Tables {
  std::array<std::string, 256> spelling;
  std::array<int, kLastSpelling + 1> byte;

  Tables() {
    byte.fill(-1);
    char32_t next = 0x100;  // for the bytes that are not printable in Latin-1
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      const char32_t c = printable ? static_cast<char32_t>(b) : next++;
      spelling[b] = to_utf8(c);
      byte[c] = b;
    }
  }
};

const Tables& tables() {
  static const Tables tables;
  return tables;
}

constexpr std::string_view kHexDigits = "0123456789ABCDEF";
constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
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
  return mapped(utf8_characters(text), &Utf8Character::bytes);
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

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines = split(without_mark(text), '\n');
  if (lines.back().empty()) lines.pop_back();
  for (std::string_view& line : lines)
    if (line.ends_with('\r')) line.remove_suffix(1);
  return lines;
}

std::vector<std::string_view> split_white_space(std::string_view text, bool (*is_space)(char32_t)) {
  std::vector<std::string_view> words;
  size_t start = 0;
  for (const Utf8Character& character : utf8_characters(text)) {
    if (!is_space(character.code_point())) continue;
    if (character.begin > start) words.push_back(text.substr(start, character.begin - start));
    start = character.end;
  }
  if (start < text.size()) words.push_back(text.substr(start));
  return words;
}

void spell_bytes(std::string_view bytes, std::string& spelling) {
  for (const char c : bytes) spelling += tables().spelling[static_cast<unsigned char>(c)];
}

bool read_spelling(std::string_view spelling, std::string& bytes) {
  const size_t before = bytes.size();
  for (const Utf8Character& character : utf8_characters(spelling)) {
    const char32_t c = character.code_point();
    if (c > kLastSpelling || tables().byte[c] < 0) {
      bytes.resize(before);
      return false;
    }
    bytes += static_cast<char>(tables().byte[c]);
  }
  return true;
}

std::string byte_piece(int byte) { return {'<', '0', 'x', kHexDigits[byte / 16], kHexDigits[byte % 16], '>'}; }

int fallback_byte(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return -1;
  const auto digit = [&](size_t i) {
    return kHexDigits.find(piece[i] >= 'a' ? static_cast<char>(piece[i] - 32) : piece[i]);
  };
  const size_t high = digit(3), low = digit(4);
  return high > 15 || low > 15 ? -1 : static_cast<int>(16 * high + low);
}

std::string encode_base64(std::string_view bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    for (size_t k = 0; k < 3; ++k)
      three = three << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k) text += i + k > bytes.size() ? '=' : kDigits[(three >> (18 - 6 * k)) & 63];
  }
  return text;
}

bool decode_base64(std::string_view text, std::string& bytes) {
  bytes.clear();
  if (text.size() % 4 != 0) return false;
  if (text.ends_with('=')) text.remove_suffix(text.ends_with("==") ? 2 : 1);
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) return false;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes += static_cast<char>((bits >> count) & 255);
    }
  }
  return (bits & ((1u << count) - 1)) == 0;
}
}  // namespace linnet
