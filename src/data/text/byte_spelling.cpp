#include "data/text/byte_spelling.h"
#include <array>
#include <cstdint>
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {
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
