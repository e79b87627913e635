#include "data/text/pipeline/added_tokens.h"
#include <algorithm>
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

}  // namespace linnet
