#include "data/text/unicode/recent_characters.h"
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {

struct Range {
  char32_t first, last, stand_in;
};

constexpr Range kRecent[] = {
#include "data/text/unicode/recent_characters.inc"
};

// Whether any of the 256 characters with the same upper bits is in the table.
const std::array<bool, 0x1100>& pages() {
  static const std::array<bool, 0x1100> flags = [] {
    std::array<bool, 0x1100> f{};
    for (const Range& range : kRecent)
      for (char32_t page = range.first >> 8; page <= range.last >> 8; ++page) f[page] = true;
    return f;
  }();
  return flags;
}

const Range* find(char32_t c) {
  if (!pages()[c >> 8]) return nullptr;
  const Range* range = std::lower_bound(std::begin(kRecent), std::end(kRecent), c,
                                        [](const Range& r, char32_t value) { return r.last < value; });
  return range != std::end(kRecent) && range->first <= c ? range : nullptr;
}

}  // namespace

std::string_view replace_recent_characters(std::string_view text, std::string& storage) {
  bool copied = false;
  for (size_t i = 0; i < text.size();) {
    if (static_cast<unsigned char>(text[i]) < 0xE0) {  // the table begins at three bytes
      ++i;
      continue;
    }
    const size_t length = utf8_length_at(text, i);
    if (const Range* range = find(utf8_code_point_at(text, i))) {
      if (!copied) storage.assign(text);
      copied = true;
      storage.replace(i, length, to_utf8(range->stand_in));
    }
    i += length;
  }
  return copied ? std::string_view(storage) : text;
}

}  // namespace linnet
