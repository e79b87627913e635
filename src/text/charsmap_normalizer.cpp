#include <unicode/ubrk.h>
#include <unicode/utext.h>

#include <cstring>

#include "base/error.h"
#include "text/normalizers.h"
#include "text/utf8.h"

namespace linnet {
namespace {

// A unit of the trie, as darts-clone lays it out: bit 31 marks a value, bit 8 that a value hangs here, bits 10 up
// (times 256 where bit 9 is set) say where the children are, the lowest 8 bits are the byte that leads here.
bool has_leaf(uint32_t unit) { return (unit >> 8) & 1; }
uint32_t value_of(uint32_t unit) { return unit & 0x7FFFFFFFu; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000FFu; }
uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & 0x200u) >> 6); }

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
    iterator_ = ubrk_open(UBRK_CHARACTER, "", nullptr, 0, &error);
    if (U_FAILURE(error)) fail_internal("ICU cannot find the characters of a text");
  }
  ~Graphemes() {
    ubrk_close(iterator_);
    utext_close(utext_);
  }
  Graphemes(const Graphemes&) = delete;
  Graphemes& operator=(const Graphemes&) = delete;

  void start(std::string_view text) {
    UErrorCode error = U_ZERO_ERROR;
    utext_ = utext_openUTF8(utext_, text.data(), static_cast<int64_t>(text.size()), &error);
    ubrk_setUText(iterator_, utext_, &error);
    if (U_FAILURE(error)) fail_internal("ICU cannot find the characters of a text");
    ubrk_first(iterator_);
  }
  // The end of the grapheme that begins where the last one ended; npos at the end of the text.
  size_t next() {
    const int32_t end = ubrk_next(iterator_);
    return end == UBRK_DONE ? std::string_view::npos : static_cast<size_t>(end);
  }

 private:
  UText* utext_ = nullptr;
  UBreakIterator* iterator_ = nullptr;
};

CharsmapNormalizer::CharsmapNormalizer(std::string_view table, const std::string& where) {
  uint32_t bytes = 0;
  if (table.size() < sizeof bytes) fail_user(where + " has a damaged table of replacements (too short)");
  std::memcpy(&bytes, table.data(), sizeof bytes);
  table.remove_prefix(sizeof bytes);
  if (bytes % sizeof(uint32_t) != 0 || bytes == 0 || bytes >= table.size())
    fail_user(where + " has a damaged table of replacements (its trie's size)");
  units_.resize(bytes / sizeof(uint32_t));
  std::memcpy(units_.data(), table.data(), bytes);
  texts_ = table.substr(bytes);
  texts_ += '\0';
  if (invalid_utf8_at(texts_) != std::string::npos) fail_user(where + " has replacements that are not UTF-8");
}

// Common-prefix search; every step is checked against the table's ends.
const char* CharsmapNormalizer::find(std::string_view text) const {
  size_t place = offset_of(units_[0]);
  for (const char c : text) {
    place ^= static_cast<unsigned char>(c);
    if (place >= units_.size() || label_of(units_[place]) != static_cast<unsigned char>(c)) return nullptr;
    const uint32_t unit = units_[place];
    place ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    if (place >= units_.size()) return nullptr;
    const uint32_t value = value_of(units_[place]);
    return value < texts_.size() ? texts_.data() + value : nullptr;
  }
  return nullptr;
}

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
    const char* found = grapheme.size() < 6 ? find(grapheme) : nullptr;
    if (found) {
      text.put(found, begin, end);
    } else {
      for (size_t i = begin; i < end;) {
        const size_t length = utf8_length_at(old, i);
        const char* part = grapheme.size() > length ? find(old.substr(i, length)) : nullptr;
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
