#include "text/normalizers.h"

#include <unicode/unorm2.h>

#include "base/error.h"
#include "text/unicode_classes.h"
#include "text/utf8.h"

namespace linnet {
namespace {

const UNormalizer2* normalizer_of(UnicodeNormalizer::Form form) {
  UErrorCode error = U_ZERO_ERROR;
  const UNormalizer2* found = nullptr;
  switch (form) {
    case UnicodeNormalizer::Form::kNfc:
      found = unorm2_getNFCInstance(&error);
      break;
    case UnicodeNormalizer::Form::kNfd:
      found = unorm2_getNFDInstance(&error);
      break;
    case UnicodeNormalizer::Form::kNfkc:
      found = unorm2_getNFKCInstance(&error);
      break;
    case UnicodeNormalizer::Form::kNfkd:
      found = unorm2_getNFKDInstance(&error);
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
  const int32_t size = unorm2_normalize(normalizer, units.data(), static_cast<int32_t>(units.size()), result.data(),
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
      if (unorm2_hasBoundaryBefore(normalizer, static_cast<UChar32>(c)) || is_unknown_to_normalization(c)) break;
    }
    const std::string_view part = old.substr(begin, end - begin);
    if (part.size() == 1 && static_cast<unsigned char>(part[0]) < 0x80) {
      text.keep(begin, end);
    } else if (const std::string bytes = normalized(normalizer, part); bytes == part) {
      text.keep(begin, end);
    } else {
      text.put(bytes, begin, end);
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
    text.put(content_, match.begin, match.end);
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
