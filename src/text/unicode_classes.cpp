#include "text/unicode_classes.h"

#include <unicode/uchar.h>

#include "text/utf8.h"

namespace linnet {

bool is_word_character(char32_t c) {
  const auto point = static_cast<UChar32>(c);
  return u_hasBinaryProperty(point, UCHAR_ALPHABETIC) || u_hasBinaryProperty(point, UCHAR_JOIN_CONTROL) ||
         ((1u << u_charType(point)) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0;
}

size_t utf8_start_before(std::string_view text, size_t end) {
  for (size_t length = 1; length <= 4 && length <= end; ++length)
    if (utf8_length_at(text, end - length) == length) return end - length;
  return end - 1;
}

}  // namespace linnet
