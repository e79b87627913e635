#include "data/metrics/text_scores.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <unordered_map>
#include "base/fail.h"
#include "base/functions.h"
#include "base/text.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {
using Texts = std::vector<std::string>;

constexpr size_t kTokenOrders = 4, kCharacterOrders = 6;
constexpr double kBetaSquared = 4;
constexpr std::string_view kPunctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";  // Python's string.punctuation

void check_sizes(const char* score, const Texts& hypotheses, const Texts& references) {
  if (hypotheses.size() != references.size())
    fail_internal(score, " of ", hypotheses.size(), " hypotheses against ", references.size(), " references");
}

// `text` without white space at either end.
std::string_view without_space(std::string_view text, bool (*is_space)(char32_t)) {
  const std::vector<std::string_view> words = split_white_space(text, is_space);
  return words.empty() ? std::string_view() : std::string_view(words.front().begin(), words.back().end());
}

// The tokens or characters of a line, and their n-grams as views of it.
class Units {
 public:
  void add(std::string_view unit, std::string_view separator) {
    if (!text_.empty()) text_ += separator;
    begins_.push_back(text_.size());
    text_ += unit;
    ends_.push_back(text_.size());
  }
  int64_t size() const { return std::ssize(begins_); }
  int64_t ngrams(size_t n) const { return std::max<int64_t>(0, size() - static_cast<int64_t>(n) + 1); }
  std::unordered_map<std::string_view, int64_t> count(size_t n) const {
    std::unordered_map<std::string_view, int64_t> counts;
    for (size_t i = 0; i + n <= begins_.size(); ++i)
      ++counts[std::string_view(text_).substr(begins_[i], ends_[i + n - 1] - begins_[i])];
    return counts;
  }

 private:
  std::string text_;
  std::vector<size_t> begins_, ends_;
};

// The n-grams of a line that are in the other too, each at most as often as there.
int64_t matches(const Units& here, const Units& there, size_t n) {
  const auto counts = there.count(n);
  const auto shared = [&](const auto& ngram) { return std::min(ngram.second, find_or(counts, ngram.first, 0)); };
  return sum_of<int64_t>(here.count(n), shared);
}

struct OrderTotals {
  int64_t hypothesis = 0, reference = 0, matches = 0;
};

// By n up to `most`. `only_both`: a line's n-grams count only if its reference has any.
template <class UnitsOf> std::vector<OrderTotals> count_orders(
    const Texts& hypotheses, const Texts& references, size_t most, bool only_both, const UnitsOf& units_of) {
  std::vector<OrderTotals> orders(most);
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    const Units hypothesis = units_of(hypotheses[i]), reference = units_of(references[i]);
    for (size_t n = 1; n <= most; ++n) {
      OrderTotals& order = orders[n - 1];
      if (!only_both || reference.ngrams(n) > 0) order.hypothesis += hypothesis.ngrams(n);
      order.reference += reference.ngrams(n);
      order.matches += matches(hypothesis, reference, n);
    }
  }
  return orders;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_period_or_comma(char c) { return c == '.' || c == ','; }

// The blank and all ASCII punctuation but ' , - . (the last three may belong to words and numbers).
bool always_stands_alone(char c) {
  return c == ' ' ||
         (kPunctuation.find(c) != kPunctuation.npos && std::string_view("',-.").find(c) == kPunctuation.npos);
}

// Rewrites every pair of neighbors (a, b) with match(a, b), left to right without overlap, as first + a + middle + b +
// last. Bytes suffice: only the outer bytes of a non-ASCII character can be neighbors of an ASCII one.
template <typename Match> std::string rewrite_pairs(
    const std::string& text, Match match, const char* first, const char* middle, const char* last) {
  std::string result;
  result.reserve(text.size() * 5 / 4);
  for (size_t i = 0; i < text.size(); ++i) {
    if (i + 1 < text.size() && match(text[i], text[i + 1])) {
      result.append(first).append(1, text[i]).append(middle).append(1, text[i + 1]).append(last);
      ++i;
    } else {
      result += text[i];
    }
  }
  return result;
}

Units tokens_of(const std::string& line) {
  Units units;
  for (const std::string& token : tokenize_13a(line)) units.add(token, " ");
  return units;
}

Units characters_of(const std::string& line) {
  Units units;
  for (const Utf8Character& character : utf8_characters(line))
    if (!is_python_space(character.code_point())) units.add(character.bytes(), "");
  return units;
}

constexpr std::array<std::u32string_view, 3> kArticles{U"a", U"an", U"the"};

// As re.sub(r"\b(a|an|the)\b", " ", text).
std::u32string without_articles(const std::u32string& text) {
  std::u32string kept;
  for (size_t at = 0; at < text.size();) {
    const bool is_word = is_python_word(text[at]);
    size_t end = at + 1;
    while (end < text.size() && is_word && is_python_word(text[end])) ++end;
    const std::u32string_view run(text.data() + at, end - at);
    if (is_word && contains(kArticles, run)) kept += U' ';
    else kept += run;
    at = end;
  }
  return kept;
}

std::vector<std::string_view> words_of(std::string_view normalized) {
  return normalized.empty() ? std::vector<std::string_view>() : split(normalized, ' ');
}

double word_f1(std::string_view found, std::string_view wanted, bool may_lack) {
  const std::vector<std::string_view> a = words_of(found), b = words_of(wanted);
  if (may_lack && (a.empty() || b.empty())) return a.empty() == b.empty() ? 1 : 0;
  std::map<std::string_view, int64_t> counts;
  for (const std::string_view word : b) ++counts[word];
  int64_t same = 0;
  for (const std::string_view word : a)
    if (const auto count = counts.find(word); count != counts.end() && count->second-- > 0) ++same;
  if (same == 0) return 0;
  const double precision = static_cast<double>(same) / static_cast<double>(a.size()),
               recall = static_cast<double>(same) / static_cast<double>(b.size());
  return 2 * precision * recall / (precision + recall);
}
}  // namespace

std::vector<std::string> tokenize_13a(std::string_view line) {
  std::string text(without_space(line, is_python_space));
  constexpr std::string_view kReplacements[][2] = {
      {"<skipped>", ""}, {"-\n", ""}, {"\n", " "}, {"&quot;", "\""}, {"&amp;", "&"}, {"&lt;", "<"}, {"&gt;", ">"}};
  for (const auto& [from, to] : kReplacements) replace_all(text, from, to);
  std::string spaced = " ";
  for (const char c : text) {
    if (always_stands_alone(c)) spaced.append(1, ' ').append(1, c).append(1, ' ');
    else spaced += c;
  }
  spaced += ' ';
  // Three passes in this order: a period or comma after a non-digit; one before a non-digit; a dash after a digit.
  spaced = rewrite_pairs(
      spaced, [](char a, char b) { return !is_digit(a) && is_period_or_comma(b); }, "", " ", " ");
  spaced = rewrite_pairs(
      spaced, [](char a, char b) { return is_period_or_comma(a) && !is_digit(b); }, " ", " ", "");
  spaced = rewrite_pairs(
      spaced, [](char a, char b) { return is_digit(a) && b == '-'; }, "", " ", " ");
  const std::vector<std::string_view> tokens = split_white_space(spaced, is_python_space);
  return {tokens.begin(), tokens.end()};
}

Bleu corpus_bleu(const Texts& hypotheses, const Texts& references) {
  check_sizes("BLEU", hypotheses, references);
  const std::vector<OrderTotals> orders = count_orders(hypotheses, references, kTokenOrders, false, tokens_of);
  Bleu bleu{.hypothesis_length = orders[0].hypothesis, .reference_length = orders[0].reference};
  const auto length = static_cast<double>(bleu.hypothesis_length);
  const auto reference_length = static_cast<double>(bleu.reference_length);
  bleu.brevity_penalty = 1;
  if (length < reference_length) bleu.brevity_penalty = length > 0 ? std::exp(1 - reference_length / length) : 0;
  if (std::ranges::all_of(orders, [](const OrderTotals& order) { return order.matches == 0; })) return bleu;
  double smoothing = 1, log_sum = 0;
  for (size_t n = 0; n < kTokenOrders; ++n) {
    if (orders[n].hypothesis == 0) return bleu;  // no line is long enough: the score is 0
    const auto total = static_cast<double>(orders[n].hypothesis), correct = static_cast<double>(orders[n].matches);
    if (correct == 0) smoothing *= 2;
    bleu.precisions[n] = correct == 0 ? 100 / (smoothing * total) : 100 * correct / total;
    log_sum += std::log(bleu.precisions[n]);
  }
  bleu.score = bleu.brevity_penalty * std::exp(log_sum / kTokenOrders);
  return bleu;
}

double corpus_chrf(const Texts& hypotheses, const Texts& references) {
  check_sizes("chrF", hypotheses, references);
  double precision = 0, recall = 0;
  int counted = 0;
  for (const auto& order : count_orders(hypotheses, references, kCharacterOrders, true, characters_of)) {
    if (order.hypothesis == 0 || order.reference == 0) continue;
    precision += static_cast<double>(order.matches) / static_cast<double>(order.hypothesis);
    recall += static_cast<double>(order.matches) / static_cast<double>(order.reference);
    ++counted;
  }
  if (counted == 0 || precision + recall == 0) return 0;
  precision /= counted, recall /= counted;
  return 100 * (1 + kBetaSquared) * precision * recall / (kBetaSquared * precision + recall);
}

bool is_exact_match(std::string_view hypothesis, std::string_view reference) {
  return without_space(hypothesis, is_white_space) == without_space(reference, is_white_space);
}

double exact_match(const Texts& hypotheses, const Texts& references) {
  check_sizes("exact match", hypotheses, references);
  if (hypotheses.empty()) return 0;
  size_t matches = 0;
  for (size_t i = 0; i < hypotheses.size(); ++i) matches += is_exact_match(hypotheses[i], references[i]);
  return static_cast<double>(matches) / static_cast<double>(hypotheses.size());
}

int64_t count_words(std::string_view text) {
  int64_t words = 0;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    // Fast path for ASCII, without decoding.
    const bool space = byte < 0x80 ? byte == ' ' || (byte >= 9 && byte <= 13) || is_white_space(byte)
                                   : is_white_space(utf8_code_point_at(text, at));
    words += !space && !inside;
    inside = !space;
    at += byte < 0x80 ? 1 : utf8_length_at(text, at);
  }
  return words;
}

double perplexity(double nats, int64_t count) {
  return count > 0 ? std::exp(nats / static_cast<double>(count)) : std::numeric_limits<double>::quiet_NaN();
}

std::string normalized_answer(std::string_view text) {
  std::u32string lower;
  for (const Utf8Character& character : utf8_characters(text)) append_lowercase(character.code_point(), lower);
  std::erase_if(
      lower, [](char32_t c) { return c < 128 && kPunctuation.find(static_cast<char>(c)) != kPunctuation.npos; });
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
