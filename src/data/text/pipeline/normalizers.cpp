#include "data/text/pipeline/normalizers.h"
#include <utf8proc.h>
#include <algorithm>
#include "base/error.h"
#include "data/text/unicode/unicode_classes.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {

bool all_ascii(std::string_view text) {
  unsigned char all = 0;
  for (const char c : text) all |= static_cast<unsigned char>(c);
  return all < 0x80;
}

using Form = UnicodeNormalizer::Form;
bool is_compatible(Form form) { return form == Form::kNfkc || form == Form::kNfkd; }
bool composes(Form form) { return form == Form::kNfc || form == Form::kNfkc; }

// Whether a character of combining class 0 may become one with a character before it.
bool composes_backward(char32_t c) {
  if (c < 0x9BE) return false;
  if ((c >= 0x1161 && c <= 0x1175) || (c >= 0x11A8 && c <= 0x11C2)) return true;  // Hangul's vowels and last consonants
  constexpr char32_t kVowels[] = {0x9BE,   0x9D7,   0xB3E,   0xB56,   0xB57,   0xBBE,   0xBD7,   0xCC2,
                                  0xCD5,   0xCD6,   0xD3E,   0xD57,   0xDCF,   0xDDF,   0x102E,  0x1B35,
                                  0x11127, 0x1133E, 0x11357, 0x114B0, 0x114BA, 0x114BD, 0x115AF, 0x11930};
  return std::ranges::binary_search(kVowels, c);
}

// Whether what stands before `c` has no part in what becomes of `c`.
bool starts_afresh(Form form, char32_t c, std::u32string& scratch) {
  if (c < 0x300) return true;
  scratch.clear();
  append_decomposition(c, is_compatible(form), scratch);
  return combining_class(scratch[0]) == 0 && !(composes(form) && composes_backward(scratch[0]));
}

struct Part {
  char32_t c;
  uint8_t combining_class;
  bool first;  // of what its source became
};

// The characters of a stretch that starts afresh at both ends, decomposed, marks in canonical order.
std::vector<Part> decomposed(Form form, std::string_view text) {
  std::vector<Part> parts;
  std::u32string letters;
  for (size_t i = 0; i < text.size(); i += utf8_length_at(text, i)) {
    letters.clear();
    append_decomposition(utf8_code_point_at(text, i), is_compatible(form), letters);
    for (size_t k = 0; k < letters.size(); ++k) parts.push_back({letters[k], combining_class(letters[k]), k == 0});
  }
  for (size_t i = 0; i < parts.size();) {
    size_t run = i;
    while (run < parts.size() && parts[run].combining_class != 0) ++run;
    std::stable_sort(parts.begin() + static_cast<std::ptrdiff_t>(i), parts.begin() + static_cast<std::ptrdiff_t>(run),
                     [](const Part& a, const Part& b) { return a.combining_class < b.combining_class; });
    i = run + 1;
  }
  return parts;
}

std::string composed(Form form, std::string_view text) {
  std::vector<utf8proc_int32_t> points;
  for (const Part& part : decomposed(form, text)) points.push_back(static_cast<utf8proc_int32_t>(part.c));
  const auto count = utf8proc_normalize_utf32(points.data(), std::ssize(points),
                                              static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  if (count < 0) fail_internal("utf8proc cannot compose a text");
  std::string bytes;
  for (utf8proc_ssize_t i = 0; i < count; ++i) bytes += to_utf8(static_cast<char32_t>(points[static_cast<size_t>(i)]));
  return bytes;
}

// A decomposition of text[begin, end), which starts afresh at both ends, with each character's source as tokenizers
// counts it: marks that change places take the places' sources, not their own.
void put_decomposed(Form form, AlignedText& text, size_t begin, size_t end) {
  const std::string_view old = text.view();
  size_t source = begin, next = begin;
  for (const Part& part : decomposed(form, old.substr(begin, end - begin))) {
    if (part.first && next < end) {
      source = next;
      next += utf8_length_at(old, next);
    }
    text.put(to_utf8(part.c), source, source + utf8_length_at(old, source));
  }
}

// `bytes` for text[begin, end): character by character where they do not interact, else as a whole.
void put_composed(Form form, AlignedText& text, size_t begin, size_t end, const std::string& bytes) {
  const std::string_view old = text.view();
  std::vector<std::string> parts;
  std::string joined;
  for (size_t i = begin; i < end; i += utf8_length_at(old, i)) {
    parts.push_back(composed(form, old.substr(i, utf8_length_at(old, i))));
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
  if (all_ascii(old)) return;
  std::u32string scratch;
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
      if (starts_afresh(form_, c, scratch) || is_unknown_to_normalization(c)) break;
    }
    const std::string_view part = old.substr(begin, end - begin);
    if (part.size() == 1 && static_cast<unsigned char>(part[0]) < 0x80) {
      text.keep(begin, end);
    } else if (!composes(form_)) {
      put_decomposed(form_, text, begin, end);
    } else if (const std::string bytes = composed(form_, part); bytes == part) {
      text.keep(begin, end);
    } else {
      put_composed(form_, text, begin, end, bytes);
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
  if (all_ascii(old)) return;
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
