#include "data/text/unicode/unicode_classes.h"

#include <unicode/utf16.h>

#include "base/error.h"
#include "data/text/unicode/icu.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {

UChar32 point(char32_t c) { return static_cast<UChar32>(c); }

// The version of Unicode that assigned the character, times 10; 0 for none.
int age(char32_t c) {
  UVersionInfo version;
  icu().char_age(point(c), version);
  return 10 * version[0] + version[1];
}

// Category masks of Unicode 8, which differ from today's for six older characters.
uint32_t old_category(char32_t c) {
  switch (c) {
    case 0x166D:
    case 0x111C9:
      return U_GC_PO_MASK;
    case 0x1734:
      return U_GC_MN_MASK;
    case 0x1885:
    case 0x1886:
      return U_GC_LO_MASK;
    case 0xA9BD:
      return U_GC_MC_MASK;
    default:
      break;
  }
  const int version = age(c);
  return version == 0 || version > 80 ? U_GC_CN_MASK : U_MASK(icu().char_type(point(c)));
}

// Uppercase letters that are newer than ICU 72, with their lowercase (Unicode 16 and 17).
struct Lower {
  char32_t first, last, lower;
};
constexpr Lower kRecentLower[] = {{0x1C89, 0x1C89, 0x1C8A},   {0xA7CB, 0xA7CB, 0x264},  {0xA7CC, 0xA7CC, 0xA7CD},
                                  {0xA7CE, 0xA7CE, 0xA7CF},   {0xA7D2, 0xA7D2, 0xA7D3}, {0xA7D4, 0xA7D4, 0xA7D5},
                                  {0xA7DA, 0xA7DA, 0xA7DB},   {0xA7DC, 0xA7DC, 0x19B},  {0x10D50, 0x10D65, 0x10D70},
                                  {0x16EA0, 0x16EB8, 0x16EBB}};

}  // namespace

bool is_word_character(char32_t c) {
  if (c < 0x80) return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_';
  const auto has = icu().has_binary_property;
  return has(point(c), UCHAR_ALPHABETIC) || has(point(c), UCHAR_JOIN_CONTROL) ||
         (U_MASK(icu().char_type(point(c))) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0;
}

bool is_bert_control(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  if (c < 0x80) return c < ' ' || c == 0x7F;
  return (old_category(c) & (U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK)) != 0;
}

bool is_bert_punctuation(char32_t c) {
  if (c < 0x80) return c > ' ' && c < 0x7F && !(c >= '0' && c <= '9') && !((c | 32) >= 'a' && (c | 32) <= 'z');
  return (old_category(c) & U_GC_P_MASK) != 0;
}

bool is_bert_accent(char32_t c) { return c >= 0x300 && old_category(c) == U_GC_MN_MASK; }

bool is_cjk_ideograph(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0xF900 && c <= 0xFAFF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0x2F800 && c <= 0x2FA1F);
}

bool is_combining_mark(char32_t c) {
  if (c < 0x300 || c == 0x111C9) return false;
  if (c == 0x1CF2 || c == 0x1CF3) return true;
  const int version = age(c);
  return version > 0 && version <= 90 && (U_MASK(icu().char_type(point(c))) & U_GC_M_MASK) != 0;
}

bool is_unknown_to_normalization(char32_t c) { return c >= 0x800 && age(c) > 90; }

void append_decomposition(char32_t c, std::u32string& text) {
  if (c < 0xC0) {  // none has one
    text += c;
    return;
  }
  UErrorCode error = U_ZERO_ERROR;
  static const UNormalizer2* const nfd = icu().nfd(&error);
  if (!nfd) fail_internal("ICU has no NFD");
  UChar units[64];
  error = U_ZERO_ERROR;
  const int32_t count = icu().decomposition(nfd, point(c), units, 64, &error);
  if (count < 0 || U_FAILURE(error) || is_unknown_to_normalization(c)) {
    text += c;
    return;
  }
  for (int32_t i = 0; i < count;) {
    UChar32 part;
    U16_NEXT(units, i, count, part);
    text += static_cast<char32_t>(part);
  }
}

void append_lowercase(char32_t c, std::u32string& text) {
  if (c < 0x80) {
    text += c >= 'A' && c <= 'Z' ? c | 32 : c;
    return;
  }
  if (c == 0x130) {  // İ: the only one that becomes two
    text += U"i\u0307";
    return;
  }
  for (const Lower& range : kRecentLower)
    if (c >= range.first && c <= range.last) {
      text += range.lower + (c - range.first);
      return;
    }
  text += static_cast<char32_t>(icu().to_lower(point(c)));
}

size_t utf8_start_before(std::string_view text, size_t end) {
  size_t start = end - 1;
  while (start > 0 && end - start < 4 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
  return start + utf8_length_at(text, start) == end ? start : end - 1;
}

}  // namespace linnet
