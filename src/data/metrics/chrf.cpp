#include "data/metrics/chrf.h"
#include <algorithm>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include "base/error.h"
#include "data/metrics/python_space.h"

namespace linnet {
namespace {

constexpr size_t kCharacterOrders = 6;
constexpr double kBetaSquared = 4;

// A line without white space, and where its characters begin: one more than it has.
struct Characters {
  explicit Characters(const std::string& line) {
    for (size_t i = 0; i < line.size();) {
      const size_t length = utf8_length_at(line, i);
      if (!is_python_space(utf8_code_point_at(line, i))) {
        begins.push_back(text.size());
        text.append(line, i, length);
      }
      i += length;
    }
    begins.push_back(text.size());
  }
  std::string text;
  std::vector<size_t> begins;
};

using NgramCounts = std::unordered_map<std::string_view, int64_t>;

// The n-grams of n characters. They point into the line.
NgramCounts count_ngrams(const Characters& line, size_t n) {
  NgramCounts counts;
  for (size_t i = 0; i + n < line.begins.size(); ++i)
    ++counts[std::string_view(line.text).substr(line.begins[i], line.begins[i + n] - line.begins[i])];
  return counts;
}

struct OrderTotals {
  int64_t hypothesis = 0, reference = 0, matches = 0;
};

void add(const Characters& hypothesis, const Characters& reference, size_t n, OrderTotals& totals) {
  const NgramCounts here = count_ngrams(hypothesis, n), there = count_ngrams(reference, n);
  const auto sum = [n](const Characters& line) {
    return std::max<int64_t>(0, static_cast<int64_t>(line.begins.size()) - static_cast<int64_t>(n));
  };
  if (!there.empty()) totals.hypothesis += sum(hypothesis);
  totals.reference += sum(reference);
  for (const auto& [ngram, count] : here)
    if (const auto found = there.find(ngram); found != there.end()) totals.matches += std::min(count, found->second);
}

}  // namespace

double corpus_chrf(const std::vector<std::string>& hypotheses, const std::vector<std::string>& references) {
  if (hypotheses.size() != references.size())
    fail_internal("chrF of " + std::to_string(hypotheses.size()) + " hypotheses against " +
                  std::to_string(references.size()) + " references");
  OrderTotals totals[kCharacterOrders];
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    const Characters hypothesis(hypotheses[i]), reference(references[i]);
    for (size_t n = 1; n <= kCharacterOrders; ++n) add(hypothesis, reference, n, totals[n - 1]);
  }
  double precision = 0, recall = 0;
  int orders = 0;
  for (const OrderTotals& order : totals) {
    if (order.hypothesis == 0 || order.reference == 0) continue;
    precision += static_cast<double>(order.matches) / static_cast<double>(order.hypothesis);
    recall += static_cast<double>(order.matches) / static_cast<double>(order.reference);
    ++orders;
  }
  if (orders == 0 || precision + recall == 0) return 0;
  precision /= orders, recall /= orders;
  return 100 * (1 + kBetaSquared) * precision * recall / (kBetaSquared * precision + recall);
}

}  // namespace linnet
