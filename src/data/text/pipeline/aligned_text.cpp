#include "data/text/pipeline/aligned_text.h"

namespace linnet {

void AlignedText::reset(std::string_view view, size_t base, bool tracked) {
  view_ = view;
  base_ = base;
  tracked_ = tracked;
  rewritten_ = false;
}

TextRange AlignedText::source(size_t begin, size_t end) const {
  if (!rewritten_) return {base_ + begin, base_ + end};
  if (source_.empty()) return {base_, base_};
  if (begin >= end) {
    const size_t at = begin < source_.size() ? source_[begin].begin : source_.back().end;
    return {at, at};
  }
  return {source_[begin].begin, source_[end - 1].end};
}

void AlignedText::start_rewrite() {
  next_text_.clear();
  next_source_.clear();
}

void AlignedText::keep(size_t begin, size_t end) {
  next_text_.append(view().substr(begin, end - begin));
  if (!tracked_) return;
  if (rewritten_) {
    next_source_.insert(next_source_.end(), source_.begin() + static_cast<std::ptrdiff_t>(begin),
                        source_.begin() + static_cast<std::ptrdiff_t>(end));
  } else {
    for (size_t i = begin; i < end; ++i) next_source_.push_back({base_ + i, base_ + i + 1});
  }
}

void AlignedText::put(std::string_view bytes, size_t begin, size_t end) {
  next_text_.append(bytes);
  if (tracked_) next_source_.insert(next_source_.end(), bytes.size(), source(begin, end));
}

void AlignedText::finish_rewrite() {
  text_.swap(next_text_);
  source_.swap(next_source_);
  rewritten_ = true;
}

}  // namespace linnet
