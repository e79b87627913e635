// Texts on their way to a model: what is found in them as it stands, and how they are rewritten.
#include <algorithm>
#include "data/text/pipeline/pipeline.h"
#include "data/text/unicode/unicode_classes.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {

uint32_t start_of(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  return text.size() == 1 ? byte(0) << 16 : byte(0) << 8 | byte(1);
}

bool ends_in_word(std::string_view text) {
  return !text.empty() && is_word_character(utf8_code_point_at(text, utf8_start_before(text, text.size())));
}

bool starts_in_word(std::string_view text) { return !text.empty() && is_word_character(utf8_code_point_at(text, 0)); }

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (tokens_[i].text.empty()) continue;
    first_.set(static_cast<unsigned char>(tokens_[i].text[0]));
    by_start_[start_of(tokens_[i].text)].push_back(i);
  }
  for (auto& [start, locations] : by_start_)
    std::ranges::stable_sort(locations, std::ranges::greater{}, [&](size_t i) { return tokens_[i].text.size(); });
}

size_t AddedTokenMatcher::match_at(std::string_view text, size_t at) const {
  const std::string_view rest = text.substr(at);
  for (size_t length : {size_t{2}, size_t{1}}) {
    if (rest.size() < length) continue;
    const auto found = by_start_.find(start_of(rest.substr(0, length)));
    if (found == by_start_.end()) continue;
    for (const size_t location : found->second)
      if (rest.starts_with(tokens_[location].text)) return location;
  }
  return std::string_view::npos;
}

void AddedTokenMatcher::split(std::string_view text, size_t begin, size_t end,
                              std::vector<TextSegment>& segments) const {
  const std::string_view part = text.substr(0, end);
  size_t done = begin;
  for (size_t at = begin; at < end;) {
    const size_t location = first_[static_cast<unsigned char>(part[at])] ? match_at(part, at) : part.npos;
    if (location == part.npos) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[location];
    size_t from = at, to = at + token.text.size();
    at = to;
    if (token.single_word && (ends_in_word(part.substr(begin, from - begin)) || starts_in_word(part.substr(to))))
      continue;
    while (token.left_strip && from > done) {
      const size_t before = utf8_start_before(part, from);
      if (before < done || !is_white_space(utf8_code_point_at(part, before))) break;
      from = before;
    }
    while (token.right_strip && to < end && is_white_space(utf8_code_point_at(part, to)))
      to += utf8_length_at(part, to);
    if (from > done) segments.push_back({done, from, kNoToken});
    segments.push_back({from, to, token.id});
    done = to;
    at = std::max(at, to);
  }
  if (done < end) segments.push_back({done, end, kNoToken});
}

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
