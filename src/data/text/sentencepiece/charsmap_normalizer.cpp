#include <utf8proc.h>
#include "data/text/pipeline/normalizers.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {

// Whether every byte is a grapheme of its own.
bool is_plain_ascii(std::string_view text) {
  for (const char c : text)
    if (static_cast<unsigned char>(c) >= 0x80 || c == '\r') return false;
  return true;
}

// The end of the grapheme that begins at `text[begin]`.
size_t grapheme_end(std::string_view text, size_t begin) {
  utf8proc_int32_t state = 0;
  auto last = static_cast<utf8proc_int32_t>(utf8_code_point_at(text, begin));
  size_t end = begin + utf8_length_at(text, begin);
  while (end < text.size()) {
    const auto next = static_cast<utf8proc_int32_t>(utf8_code_point_at(text, end));
    if (utf8proc_grapheme_break_stateful(last, next, &state)) break;
    end += utf8_length_at(text, end);
    last = next;
  }
  return end;
}

}  // namespace

// As tokenizers does it, which is not quite SentencePiece's way: a grapheme of less than 6 bytes that begins with an
// entry becomes what the entry says, all of it; else each of its characters is looked up.
void CharsmapNormalizer::apply(AlignedText& text, PipelineScratch&) const {
  const std::string_view old = text.view();
  if (old.empty()) return;
  const bool plain = is_plain_ascii(old);
  text.start_rewrite();
  for (size_t begin = 0; begin < old.size();) {
    const size_t end = plain ? begin + 1 : grapheme_end(old, begin);
    const std::string_view grapheme = old.substr(begin, end - begin);
    const char* found = grapheme.size() < 6 ? table_.shortest(grapheme) : nullptr;
    if (found) {
      text.put(found, begin, end);
    } else {
      for (size_t i = begin; i < end;) {
        const size_t length = utf8_length_at(old, i);
        const char* part = grapheme.size() > length ? table_.shortest(old.substr(i, length)) : nullptr;
        if (part) text.put(part, i, i + length);
        else text.keep(i, i + length);
        i += length;
      }
    }
    begin = end;
  }
  text.finish_rewrite();
}

}  // namespace linnet
