#include "data/metrics/bleu.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_map>
#include "base/error.h"
#include "base/text.h"
#include "data/metrics/python_space.h"

namespace linnet {
namespace {

constexpr size_t kOrders = 4;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_period_or_comma(char c) { return c == '.' || c == ','; }

// All ASCII punctuation but ' , - . -- those three are part of words and numbers -- and the blank.
bool always_stands_alone(char c) {
  return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') ||
         (c >= ':' && c <= '@') || c == '/';
}

std::string without_trailing_space(std::string_view text) {
  size_t end = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t length = utf8_length_at(text, i);
    if (!is_python_space(utf8_code_point_at(text, i))) end = i + length;
    i += length;
  }
  return std::string(text.substr(0, end));
}

// Rewrites every pair of neighbors (a, b) with match(a, b), left to right without overlap, as
// first + a + middle + b + last. A character beyond ASCII is several bytes, of which only the outer two can be
// neighbors of an ASCII character, so bytes will do.
template <typename Match>
std::string rewrite_pairs(const std::string& text, Match match, const char* first, const char* middle,
                          const char* last) {
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

std::vector<std::string> split_python(std::string_view text) {
  std::vector<std::string> tokens;
  bool inside = false;
  for (size_t i = 0; i < text.size();) {
    const size_t length = utf8_length_at(text, i);
    if (is_python_space(utf8_code_point_at(text, i))) {
      inside = false;
    } else {
      if (!inside) tokens.emplace_back();
      tokens.back().append(text, i, length);
      inside = true;
    }
    i += length;
  }
  return tokens;
}

// The n-grams of one line with their counts. The tokens are joined by blanks, which none contains, so an n-gram is a
// stretch of the joined line and needs no copy.
class NGrams {
 public:
  explicit NGrams(const std::vector<std::string>& tokens) {
    std::vector<size_t> begins, ends;
    for (const std::string& token : tokens) {
      begins.push_back(joined_.size());
      joined_ += token;
      ends.push_back(joined_.size());
      joined_ += ' ';
    }
    const std::string_view view = joined_;
    for (size_t n = 1; n <= kOrders; ++n)
      for (size_t i = 0; i + n <= tokens.size(); ++i)
        ++counts_[n - 1][view.substr(begins[i], ends[i + n - 1] - begins[i])];
  }
  NGrams(const NGrams&) = delete;  // the counts point into joined_
  NGrams& operator=(const NGrams&) = delete;

  // How many n-grams of `other` are here too, each at most as often as it is here.
  int64_t matches(const NGrams& other, size_t n) const {
    int64_t sum = 0;
    for (const auto& [ngram, count] : other.counts_[n - 1])
      if (const auto found = counts_[n - 1].find(ngram); found != counts_[n - 1].end())
        sum += std::min(count, found->second);
    return sum;
  }

 private:
  std::string joined_;
  std::array<std::unordered_map<std::string_view, int64_t>, kOrders> counts_;
};

struct Counts {
  int64_t correct[kOrders] = {}, total[kOrders] = {};
};

void finish(const Counts& counts, Bleu& bleu) {
  const auto hypotheses = static_cast<double>(bleu.hypothesis_length);
  const auto references = static_cast<double>(bleu.reference_length);
  bleu.brevity_penalty = 1;
  if (hypotheses < references) bleu.brevity_penalty = hypotheses > 0 ? std::exp(1 - references / hypotheses) : 0;
  if (std::all_of(std::begin(counts.correct), std::end(counts.correct), [](int64_t c) { return c == 0; })) return;

  double smoothing = 1, log_sum = 0;
  for (size_t n = 0; n < kOrders; ++n) {
    if (counts.total[n] == 0) return;  // no line is long enough: the score is 0
    const auto total = static_cast<double>(counts.total[n]);
    if (counts.correct[n] == 0) {
      smoothing *= 2;
      bleu.precisions[n] = 100 / (smoothing * total);
    } else {
      bleu.precisions[n] = 100 * static_cast<double>(counts.correct[n]) / total;
    }
    log_sum += std::log(bleu.precisions[n]);
  }
  bleu.score = bleu.brevity_penalty * std::exp(log_sum / kOrders);
}

}  // namespace

std::vector<std::string> tokenize_13a(std::string_view line) {
  std::string text = without_trailing_space(line);
  replace_all(text, "<skipped>", "");
  replace_all(text, "-\n", "");
  replace_all(text, "\n", " ");
  replace_all(text, "&quot;", "\"");
  replace_all(text, "&amp;", "&");
  replace_all(text, "&lt;", "<");
  replace_all(text, "&gt;", ">");

  std::string spaced = " ";
  for (const char c : text) {
    if (always_stands_alone(c)) spaced.append(1, ' ').append(1, c).append(1, ' ');
    else spaced += c;
  }
  spaced += ' ';
  // Three passes, in this order: a period or comma after something that is no digit; one before; a dash after a digit.
  spaced = rewrite_pairs(
      spaced, [](char a, char b) { return !is_digit(a) && is_period_or_comma(b); }, "", " ", " ");
  spaced = rewrite_pairs(
      spaced, [](char a, char b) { return is_period_or_comma(a) && !is_digit(b); }, " ", " ", "");
  spaced = rewrite_pairs(
      spaced, [](char a, char b) { return is_digit(a) && b == '-'; }, "", " ", " ");
  return split_python(spaced);
}

Bleu corpus_bleu(const std::vector<std::string>& hypotheses, const std::vector<std::string>& references) {
  if (hypotheses.size() != references.size())
    fail_internal("BLEU of " + std::to_string(hypotheses.size()) + " hypotheses against " +
                  std::to_string(references.size()) + " references");
  Bleu bleu;
  Counts counts;
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    const std::vector<std::string> hypothesis = tokenize_13a(hypotheses[i]), reference = tokenize_13a(references[i]);
    bleu.hypothesis_length += static_cast<int64_t>(hypothesis.size());
    bleu.reference_length += static_cast<int64_t>(reference.size());
    const NGrams here(hypothesis), there(reference);
    for (size_t n = 1; n <= kOrders; ++n) {
      counts.correct[n - 1] += there.matches(here, n);
      counts.total[n - 1] +=
          std::max<int64_t>(0, static_cast<int64_t>(hypothesis.size()) - static_cast<int64_t>(n) + 1);
    }
  }
  finish(counts, bleu);
  return bleu;
}

}  // namespace linnet
