// A text on its way from what the user wrote to what a tokenizer's model sees, and which bytes came from where.
#pragma once
#include <string>
#include <string_view>
#include <vector>
#include "data/text/pretrained_tokenizer.h"
#include "data/text/unicode/utf8.h"

namespace linnet {

// Unchanged text is a view of the original; nothing is copied until a step rewrites it.
class AlignedText {
 public:
  // `base` is where `view` begins in the original. Without `tracked` source() is not to be asked.
  void reset(std::string_view view, size_t base, bool tracked);

  std::string_view view() const { return rewritten_ ? std::string_view(text_) : view_; }
  bool at_start() const { return base_ == 0; }  // view() began where the original begins
  bool tracked() const { return tracked_; }
  // The bytes of the original behind bytes [begin, end) of view().
  TextRange source(size_t begin, size_t end) const;

  // A rewrite: any number of keep() and put(), in order, between start_rewrite() and finish_rewrite(); view() and
  // source() speak of the old text until then. What neither names is dropped.
  void start_rewrite();
  void keep(size_t begin, size_t end);                         // copies these bytes
  void put(std::string_view bytes, size_t begin, size_t end);  // in place of these
  void finish_rewrite();
  // A rewrite in which change(character, begin, end) puts or keeps what becomes of each.
  template <class Change>
  void rewrite_characters(const Change& change) {
    start_rewrite();
    for (size_t begin = 0, end; begin < view().size(); begin = end) {
      end = begin + utf8_length_at(view(), begin);
      change(utf8_code_point_at(view(), begin), begin, end);
    }
    finish_rewrite();
  }

 private:
  std::string_view view_;
  size_t base_ = 0;
  bool tracked_ = false, rewritten_ = false;
  std::string text_, next_text_;
  std::vector<TextRange> source_, next_source_;  // of each byte of text_
};

}  // namespace linnet
