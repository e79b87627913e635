#include "base/error.h"
#include "data/text/pipeline/normalizers.h"
#include "data/text/unicode/icu.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {

// Whether every byte is a grapheme of its own.
bool is_plain_ascii(std::string_view text) {
  for (const char c : text)
    if (static_cast<unsigned char>(c) >= 0x80 || c == '\r') return false;
  return true;
}

}  // namespace

// ICU's break iterator over UTF-8; making one takes longer than most texts.
class Graphemes {
 public:
  Graphemes() {
    UErrorCode error = U_ZERO_ERROR;
    iterator_ = icu().open_breaks(UBRK_CHARACTER, "", nullptr, 0, &error);
    if (U_FAILURE(error)) fail_internal("ICU cannot find the characters of a text");
  }
  ~Graphemes() {
    icu().close_breaks(iterator_);
    icu().close_text(utext_);
  }
  Graphemes(const Graphemes&) = delete;
  Graphemes& operator=(const Graphemes&) = delete;

  void start(std::string_view text) {
    UErrorCode error = U_ZERO_ERROR;
    utext_ = icu().open_utf8(utext_, text.data(), static_cast<int64_t>(text.size()), &error);
    icu().set_break_text(iterator_, utext_, &error);
    if (U_FAILURE(error)) fail_internal("ICU cannot find the characters of a text");
    icu().first_break(iterator_);
  }
  // The end of the grapheme that begins where the last one ended; npos at the end of the text.
  size_t next() {
    const int32_t end = icu().next_break(iterator_);
    return end == UBRK_DONE ? std::string_view::npos : static_cast<size_t>(end);
  }

 private:
  UText* utext_ = nullptr;
  UBreakIterator* iterator_ = nullptr;
};

// As tokenizers does it, which is not quite SentencePiece's way: a grapheme of less than 6 bytes that begins with an
// entry becomes what the entry says, all of it; else each of its characters is looked up.
void CharsmapNormalizer::apply(AlignedText& text, PipelineScratch& scratch) const {
  const std::string_view old = text.view();
  if (old.empty()) return;
  const bool plain = is_plain_ascii(old);
  if (!plain) {
    if (!scratch.graphemes) scratch.graphemes = std::make_shared<Graphemes>();
    scratch.graphemes->start(old);
  }
  text.start_rewrite();
  for (size_t begin = 0; begin < old.size();) {
    size_t end = plain ? begin + 1 : scratch.graphemes->next();
    if (end == std::string_view::npos || end <= begin) end = old.size();
    const std::string_view grapheme = old.substr(begin, end - begin);
    const char* found = grapheme.size() < 6 ? table_.shortest(grapheme) : nullptr;
    if (found) {
      text.put(found, begin, end);
    } else {
      for (size_t i = begin; i < end;) {
        const size_t length = utf8_length_at(old, i);
        const char* part = grapheme.size() > length ? table_.shortest(old.substr(i, length)) : nullptr;
        if (part)
          text.put(part, i, i + length);
        else
          text.keep(i, i + length);
        i += length;
      }
    }
    begin = end;
  }
  text.finish_rewrite();
}

}  // namespace linnet
