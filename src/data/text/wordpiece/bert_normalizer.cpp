#include <algorithm>
#include <vector>
#include "data/text/pipeline/normalizers.h"
#include "data/text/unicode/unicode_classes.h"
#include "data/text/unicode/utf8.h"

namespace linnet {

namespace {

// Marks that stay when accents go, such as those of vowels beside a letter: decomposition puts those behind one letter
// in the order of their classes.
class KeptMarks {
 public:
  void add(char32_t mark, std::string bytes, size_t begin, size_t end) {
    marks_.push_back({combining_class(mark), std::move(bytes), begin, end});
  }
  void put(AlignedText& text) {
    if (marks_.empty()) return;
    std::ranges::stable_sort(marks_, {}, &Mark::order);
    for (const Mark& mark : marks_) text.put(mark.bytes, mark.begin, mark.end);
    marks_.clear();
  }

 private:
  struct Mark {
    uint8_t order;
    std::string bytes;
    size_t begin, end;
  };
  std::vector<Mark> marks_;
};

}  // namespace

void BertNormalizer::apply(AlignedText& text, PipelineScratch&) const {
  const std::string_view old = text.view();
  text.start_rewrite();
  KeptMarks marks;
  std::u32string parts, lower;
  std::string bytes;
  for (size_t i = 0; i < old.size();) {
    const size_t length = utf8_length_at(old, i), end = i + length;
    const char32_t c = utf8_code_point_at(old, i);
    const size_t begin = i;
    i = end;
    if (clean_) {
      if (is_white_space(c) && !is_bert_control(c)) {
        marks.put(text);
        text.put(" ", begin, end);
        continue;
      }
      if (c == 0 || c == 0xFFFD || is_bert_control(c)) continue;
    }
    if (c < 0x80) {
      marks.put(text);
      if (lowercase_ && c >= 'A' && c <= 'Z') {
        const char small = static_cast<char>(c | 32);
        text.put({&small, 1}, begin, end);
      } else {
        text.keep(begin, end);
      }
      continue;
    }
    const bool spaced = space_cjk_ && is_cjk_ideograph(c);
    parts.clear();
    if (strip_accents_) append_decomposition(c, false, parts);
    else parts += c;
    if (spaced) marks.put(text), text.put(" ", begin, end);
    for (const char32_t part : parts) {
      if (strip_accents_ && is_bert_accent(part)) continue;
      lower.clear();
      if (lowercase_) append_lowercase(part, lower);
      else lower += part;
      bytes.clear();
      for (const char32_t letter : lower) bytes += to_utf8(letter);
      if (strip_accents_ && combining_class(part) != 0) {
        marks.add(part, std::move(bytes), begin, end);
        continue;
      }
      marks.put(text);
      text.put(bytes, begin, end);
    }
    if (spaced) text.put(" ", begin, end);
  }
  marks.put(text);
  text.finish_rewrite();
}

}  // namespace linnet
