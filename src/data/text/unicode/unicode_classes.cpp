#include <utf8proc.h>
#include <algorithm>
#include <iterator>
#include <span>
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {
struct Assigned {
  char32_t first, last;
};
#include "data/text/unicode/assigned.inc"

bool holds(std::span<const Assigned> ranges, char32_t c) {
  const auto range = std::ranges::lower_bound(ranges, c, {}, &Assigned::last);
  return range != ranges.end() && range->first <= c;
}

uint32_t mask_of(utf8proc_category_t category) { return uint32_t{1} << category; }
template <typename... Categories> constexpr uint32_t masks(Categories... categories) {
  return ((uint32_t{1} << categories) | ...);
}
constexpr uint32_t kMarks = masks(UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_MC, UTF8PROC_CATEGORY_ME);
constexpr uint32_t kLetters =
    masks(UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LL, UTF8PROC_CATEGORY_LT, UTF8PROC_CATEGORY_LM, UTF8PROC_CATEGORY_LO);
constexpr uint32_t kPunctuation = masks(UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PD, UTF8PROC_CATEGORY_PS,
    UTF8PROC_CATEGORY_PE, UTF8PROC_CATEGORY_PI, UTF8PROC_CATEGORY_PF, UTF8PROC_CATEGORY_PO);

uint32_t category(char32_t c) { return mask_of(utf8proc_category(static_cast<utf8proc_int32_t>(c))); }

// Unicode 8's category, which differs from today's for six older characters.
uint32_t old_category(char32_t c) {
  switch (c) {
    case 0x166D:
    case 0x111C9: return mask_of(UTF8PROC_CATEGORY_PO);
    case 0x1734: return mask_of(UTF8PROC_CATEGORY_MN);
    case 0x1885:
    case 0x1886: return mask_of(UTF8PROC_CATEGORY_LO);
    case 0xA9BD: return mask_of(UTF8PROC_CATEGORY_MC);
    default: break;
  }
  return holds(kUnicode8, c) ? category(c) : mask_of(UTF8PROC_CATEGORY_CN);
}

bool is_in_unicode9(char32_t c) { return holds(kUnicode8, c) || holds(kNewInUnicode9, c); }

// Uppercase letters newer than Unicode 15, with their lowercase (Unicode 16 and 17).
struct Lower {
  char32_t first, last, lower;
};
constexpr Lower kRecentLower[] = {{0x1C89, 0x1C89, 0x1C8A}, {0xA7CB, 0xA7CB, 0x264}, {0xA7CC, 0xA7CC, 0xA7CD},
    {0xA7CE, 0xA7CE, 0xA7CF}, {0xA7D2, 0xA7D2, 0xA7D3}, {0xA7D4, 0xA7D4, 0xA7D5}, {0xA7DA, 0xA7DA, 0xA7DB},
    {0xA7DC, 0xA7DC, 0x19B}, {0x10D50, 0x10D65, 0x10D70}, {0x16EA0, 0x16EB8, 0x16EBB}};
}  // namespace

bool is_word_character(char32_t c) {
  if (c < 0x80) return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_';
  constexpr uint32_t kWord =
      kLetters | kMarks | masks(UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NL, UTF8PROC_CATEGORY_PC);
  // Joiners and alphabetic symbols: letters in circles and squares.
  return (category(c) & kWord) != 0 || c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) ||
         (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

bool is_python_word(char32_t c) {
  return c == '_' ||
         (category(c) & (kLetters | masks(UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NL, UTF8PROC_CATEGORY_NO))) != 0;
}

bool is_bert_control(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  if (c < 0x80) return c < ' ' || c == 0x7F;
  return (old_category(c) & masks(UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CF, UTF8PROC_CATEGORY_CO)) != 0;
}

bool is_bert_punctuation(char32_t c) {
  if (c < 0x80) return c > ' ' && c < 0x7F && !(c >= '0' && c <= '9') && !((c | 32) >= 'a' && (c | 32) <= 'z');
  return (old_category(c) & kPunctuation) != 0;
}

bool is_bert_accent(char32_t c) { return c >= 0x300 && old_category(c) == mask_of(UTF8PROC_CATEGORY_MN); }

bool is_cjk_ideograph(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0xF900 && c <= 0xFAFF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0x2F800 && c <= 0x2FA1F);
}

bool is_combining_mark(char32_t c) {
  if (c < 0x300 || c == 0x111C9) return false;
  if (c == 0x1CF2 || c == 0x1CF3) return true;
  return (category(c) & kMarks) != 0 && is_in_unicode9(c);
}

bool is_unknown_to_normalization(char32_t c) {
  return c >= 0x800 && !is_in_unicode9(c) && category(c) != mask_of(UTF8PROC_CATEGORY_CN);
}

uint8_t combining_class(char32_t c) {
  return c < 0x300 ? 0 : static_cast<uint8_t>(utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class);
}

void append_decomposition(char32_t c, bool compatible, std::u32string& text) {
  if (c < (compatible ? 0xA0 : 0xC0) || is_unknown_to_normalization(c)) {
    text += c;
    return;
  }
  utf8proc_int32_t parts[32];  // U+FDFA becomes 18
  int ignored = 0;
  const auto options =
      static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE | (compatible ? UTF8PROC_COMPAT : 0));
  const auto count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, std::ssize(parts), options, &ignored);
  if (count <= 0 || count > std::ssize(parts)) text += c;
  else text.append(parts, parts + count);
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
  text += static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

size_t utf8_start_before(std::string_view text, size_t end) {
  size_t start = end - 1;
  while (start > 0 && end - start < 4 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
  return start + utf8_length_at(text, start) == end ? start : end - 1;
}
}  // namespace linnet
