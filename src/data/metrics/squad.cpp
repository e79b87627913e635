#include "data/metrics/squad.h"
#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>
#include "base/text.h"
#include "data/text/unicode/unicode_classes.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {

constexpr std::string_view kPunctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";  // Python's string.punctuation
constexpr std::array<std::u32string_view, 3> kArticles{U"a", U"an", U"the"};

// As re.sub(r"\b(a|an|the)\b", " ", text).
std::u32string without_articles(const std::u32string& text) {
  std::u32string kept;
  for (size_t at = 0; at < text.size();) {
    const bool is_word = is_python_word(text[at]);
    size_t end = at + 1;
    while (end < text.size() && is_word && is_python_word(text[end])) ++end;
    const std::u32string_view run(text.data() + at, end - at);
    if (is_word && std::ranges::count(kArticles, run) > 0) kept += U' ';
    else kept += run;
    at = end;
  }
  return kept;
}

using WordCounts = std::map<std::string_view, int64_t>;

std::vector<std::string_view> words_of(std::string_view normalized) {
  return normalized.empty() ? std::vector<std::string_view>() : split(normalized, ' ');
}

double word_f1(std::string_view found, std::string_view wanted, bool may_lack) {
  const std::vector<std::string_view> a = words_of(found), b = words_of(wanted);
  if (may_lack && (a.empty() || b.empty())) return a.empty() == b.empty() ? 1 : 0;
  WordCounts counts;
  for (const std::string_view word : b) ++counts[word];
  int64_t same = 0;
  for (const std::string_view word : a)
    if (const auto count = counts.find(word); count != counts.end() && count->second-- > 0) ++same;
  if (same == 0) return 0;
  const double precision = 1.0 * static_cast<double>(same) / static_cast<double>(a.size()),
               recall = 1.0 * static_cast<double>(same) / static_cast<double>(b.size());
  return 2 * precision * recall / (precision + recall);
}

}  // namespace

std::string normalized_answer(std::string_view text) {
  std::u32string lower;
  for (size_t at = 0; at < text.size(); at += utf8_length_at(text, at))
    append_lowercase(utf8_code_point_at(text, at), lower);
  std::erase_if(lower,
                [](char32_t c) { return c < 128 && kPunctuation.find(static_cast<char>(c)) != kPunctuation.npos; });
  std::string normalized;
  bool gap = false;
  for (const char32_t c : without_articles(lower)) {
    if (is_python_space(c)) {
      gap = true;
      continue;
    }
    if (std::exchange(gap, false) && !normalized.empty()) normalized += ' ';
    normalized += to_utf8(c);
  }
  return normalized;
}

AnswerScore score_answer(std::string_view found, std::span<const std::string> wanted, bool may_lack) {
  std::vector<std::string> right;
  for (const std::string& answer : wanted) {
    std::string normalized = normalized_answer(answer);
    if (!may_lack || !normalized.empty()) right.push_back(std::move(normalized));
  }
  if (may_lack && right.empty()) right.emplace_back();
  const std::string own = normalized_answer(found);
  AnswerScore score;
  for (const std::string& answer : right) {
    score.exact = std::max(score.exact, own == answer ? 1.0 : 0.0);
    score.f1 = std::max(score.f1, word_f1(own, answer, may_lack));
  }
  return score;
}

}  // namespace linnet
