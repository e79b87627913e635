#include "data/text/pipeline/normalizers.h"

#include <unicode/utf16.h>

#include <algorithm>

#include "base/error.h"
#include "data/text/unicode/icu.h"
#include "data/text/unicode/unicode_classes.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {

const UNormalizer2* normalizer_of(UnicodeNormalizer::Form form) {
  UErrorCode error = U_ZERO_ERROR;
  const UNormalizer2* found = nullptr;
  switch (form) {
    case UnicodeNormalizer::Form::kNfc:
      found = icu().nfc(&error);
      break;
    case UnicodeNormalizer::Form::kNfd:
      found = icu().nfd(&error);
      break;
    case UnicodeNormalizer::Form::kNfkc:
      found = icu().nfkc(&error);
      break;
    case UnicodeNormalizer::Form::kNfkd:
      found = icu().nfkd(&error);
      break;
  }
  if (!found || U_FAILURE(error)) fail_internal("ICU has no Unicode normalization");
  return found;
}

bool is_ascii(std::string_view text) {
  unsigned char all = 0;
  for (const char c : text) all |= static_cast<unsigned char>(c);
  return all < 0x80;
}

// A stretch between two places where normalization can start afresh.
std::string normalized(const UNormalizer2* normalizer, std::string_view text) {
  std::u16string units, result;
  for (size_t i = 0; i < text.size(); i += utf8_length_at(text, i)) {
    const char32_t c = utf8_code_point_at(text, i);
    if (c >= 0x10000) {
      units += static_cast<char16_t>(0xD800 + ((c - 0x10000) >> 10));
      units += static_cast<char16_t>(0xDC00 + ((c - 0x10000) & 0x3FF));
    } else {
      units += static_cast<char16_t>(c);
    }
  }
  result.resize(20 * units.size());  // no character grows more than 18-fold
  UErrorCode error = U_ZERO_ERROR;
  const int32_t size = icu().normalize(normalizer, units.data(), static_cast<int32_t>(units.size()), result.data(),
                                       static_cast<int32_t>(result.size()), &error);
  if (U_FAILURE(error)) fail_internal("ICU cannot normalize a text");
  std::string bytes;
  for (int32_t i = 0; i < size; ++i) {
    char32_t c = result[static_cast<size_t>(i)];
    if (c >= 0xD800 && c < 0xDC00 && i + 1 < size)
      c = 0x10000 + ((c - 0xD800) << 10) + (result[static_cast<size_t>(++i)] - 0xDC00u);
    bytes += to_utf8(c);
  }
  return bytes;
}

// A decomposition of text[begin, end), which starts afresh at both ends, with each character's source as tokenizers
// counts it: marks that change places take the places' sources, not their own.
void put_decomposed(const UNormalizer2* normalizer, AlignedText& text, size_t begin, size_t end) {
  struct Part {
    char32_t c;
    uint8_t combining_class;
    bool first;  // of what its source became
  };
  const std::string_view old = text.view();
  std::vector<Part> parts;
  for (size_t i = begin; i < end; i += utf8_length_at(old, i)) {
    const auto c = static_cast<UChar32>(utf8_code_point_at(old, i));
    UChar units[64];
    UErrorCode error = U_ZERO_ERROR;
    const int32_t count = icu().decomposition(normalizer, c, units, 64, &error);
    if (count < 0 || U_FAILURE(error)) parts.push_back({static_cast<char32_t>(c), icu().combining_class(c), true});
    for (int32_t k = 0; k < count && U_SUCCESS(error);) {
      UChar32 part;
      const bool first = k == 0;
      U16_NEXT(units, k, count, part);
      parts.push_back({static_cast<char32_t>(part), icu().combining_class(part), first});
    }
  }
  for (size_t i = 0; i < parts.size();) {  // canonical order: each run of marks by class
    size_t run = i;
    while (run < parts.size() && parts[run].combining_class != 0) ++run;
    const auto from = parts.begin() + static_cast<std::ptrdiff_t>(i);
    std::stable_sort(from, parts.begin() + static_cast<std::ptrdiff_t>(run),
                     [](const Part& a, const Part& b) { return a.combining_class < b.combining_class; });
    i = run + 1;
  }
  size_t source = begin, next = begin;
  for (const Part& part : parts) {
    if (part.first && next < end) {
      source = next;
      next += utf8_length_at(old, next);
    }
    text.put(to_utf8(part.c), source, source + utf8_length_at(old, source));
  }
}

// `bytes` for text[begin, end): character by character where they do not interact, else as a whole.
void put_composed(const UNormalizer2* normalizer, AlignedText& text, size_t begin, size_t end,
                  const std::string& bytes) {
  const std::string_view old = text.view();
  std::vector<std::string> parts;
  std::string joined;
  for (size_t i = begin; i < end; i += utf8_length_at(old, i)) {
    parts.push_back(normalized(normalizer, old.substr(i, utf8_length_at(old, i))));
    joined += parts.back();
  }
  if (joined != bytes) return text.put(bytes, begin, end);
  size_t at = begin;
  for (const std::string& part : parts) {
    const size_t next = at + utf8_length_at(old, at);
    text.put(part, at, next);
    at = next;
  }
}

}  // namespace

void UnicodeNormalizer::apply(AlignedText& text, PipelineScratch&) const {
  const std::string_view old = text.view();
  if (is_ascii(old)) return;
  const UNormalizer2* normalizer = normalizer_of(form_);
  text.start_rewrite();
  for (size_t begin = 0; begin < old.size();) {
    size_t end = begin + utf8_length_at(old, begin);
    if (is_unknown_to_normalization(utf8_code_point_at(old, begin))) {
      text.keep(begin, end);
      begin = end;
      continue;
    }
    for (; end < old.size(); end += utf8_length_at(old, end)) {
      const char32_t c = utf8_code_point_at(old, end);
      if (icu().has_boundary_before(normalizer, static_cast<UChar32>(c)) || is_unknown_to_normalization(c)) break;
    }
    const std::string_view part = old.substr(begin, end - begin);
    if (part.size() == 1 && static_cast<unsigned char>(part[0]) < 0x80) {
      text.keep(begin, end);
    } else if (form_ == Form::kNfd || form_ == Form::kNfkd) {
      put_decomposed(normalizer, text, begin, end);
    } else if (const std::string bytes = normalized(normalizer, part); bytes == part) {
      text.keep(begin, end);
    } else {
      put_composed(normalizer, text, begin, end, bytes);
    }
    begin = end;
  }
  text.finish_rewrite();
}

void LowercaseNormalizer::apply(AlignedText& text, PipelineScratch&) const {
  const std::string_view old = text.view();
  text.start_rewrite();
  std::u32string lower;
  for (size_t i = 0; i < old.size();) {
    const size_t length = utf8_length_at(old, i);
    const char32_t c = utf8_code_point_at(old, i);
    lower.clear();
    append_lowercase(c, lower);
    if (lower.size() == 1 && lower[0] == c) {
      text.keep(i, i + length);
    } else {
      std::string bytes;
      for (const char32_t letter : lower) bytes += to_utf8(letter);
      text.put(bytes, i, i + length);
    }
    i += length;
  }
  text.finish_rewrite();
}

void StripAccentsNormalizer::apply(AlignedText& text, PipelineScratch&) const {
  const std::string_view old = text.view();
  if (is_ascii(old)) return;
  text.start_rewrite();
  for (size_t i = 0; i < old.size();) {
    const size_t length = utf8_length_at(old, i);
    if (!is_combining_mark(utf8_code_point_at(old, i))) text.keep(i, i + length);
    i += length;
  }
  text.finish_rewrite();
}

void StripNormalizer::apply(AlignedText& text, PipelineScratch&) const {
  const std::string_view old = text.view();
  size_t begin = 0, end = old.size();
  while (left_ && begin < end && is_white_space(utf8_code_point_at(old, begin))) begin += utf8_length_at(old, begin);
  while (right_ && end > begin) {
    const size_t last = utf8_start_before(old, end);
    if (!is_white_space(utf8_code_point_at(old, last))) break;
    end = last;
  }
  if (begin == 0 && end == old.size()) return;
  text.start_rewrite();
  text.keep(begin, end);
  text.finish_rewrite();
}

void ReplaceNormalizer::apply(AlignedText& text, PipelineScratch& scratch) const {
  const std::string_view old = text.view();
  scratch.matches.clear();
  pattern_.find_all(old, scratch.match, scratch.matches);
  if (scratch.matches.empty()) return;
  text.start_rewrite();
  size_t done = 0;
  for (const TextRange& match : scratch.matches) {
    text.keep(done, match.begin);
    text.put(content_, utf8_start_before(old, match.end), match.end);  // tokenizers names the last character alone
    done = match.end;
  }
  text.keep(done, old.size());
  text.finish_rewrite();
}

void PrependNormalizer::apply(AlignedText& text, PipelineScratch&) const {
  const std::string_view old = text.view();
  if (old.empty()) return;
  text.start_rewrite();
  text.put(content_, 0, utf8_length_at(old, 0));
  text.keep(0, old.size());
  text.finish_rewrite();
}

}  // namespace linnet
