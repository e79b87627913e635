#include "data/text/bpe/byte_alphabet.h"
#include <array>
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
      spelling[static_cast<size_t>(b)] = to_utf8(c);
      byte[c] = b;
    }
  }
};

const Tables& tables() {
  static const Tables tables;
  return tables;
}

constexpr std::string_view kHexDigits = "0123456789ABCDEF";

}  // namespace

void spell_bytes(std::string_view bytes, std::string& spelling) {
  for (const char c : bytes) spelling += tables().spelling[static_cast<unsigned char>(c)];
}

bool read_spelling(std::string_view spelling, std::string& bytes) {
  const size_t before = bytes.size();
  for (size_t i = 0; i < spelling.size(); i += utf8_length_at(spelling, i)) {
    const char32_t c = utf8_code_point_at(spelling, i);
    if (c > kLastSpelling || tables().byte[c] < 0) {
      bytes.resize(before);
      return false;
    }
    bytes += static_cast<char>(tables().byte[c]);
  }
  return true;
}

std::string byte_piece(int byte) {
  return {'<', '0', 'x', kHexDigits[static_cast<size_t>(byte / 16)], kHexDigits[static_cast<size_t>(byte % 16)], '>'};
}

int fallback_byte(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return -1;
  const auto digit = [&](size_t i) {
    return kHexDigits.find(piece[i] >= 'a' ? static_cast<char>(piece[i] - 32) : piece[i]);
  };
  const size_t high = digit(3), low = digit(4);
  return high > 15 || low > 15 ? -1 : static_cast<int>(16 * high + low);
}

}  // namespace linnet
