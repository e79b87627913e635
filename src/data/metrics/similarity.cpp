#include "data/metrics/similarity.h"
#include <algorithm>
#include <cmath>
#include <numeric>
#include "base/functions.h"

namespace linnet {
namespace {
std::vector<double> ranks_of(std::span<const double> values) {
  std::vector<size_t> order = numbers_below<size_t>(values.size());
  std::ranges::stable_sort(order, {}, [&](size_t i) { return values[i]; });
  std::vector<double> ranks(values.size());
  for (size_t first = 0; first < order.size();) {
    size_t end = first + 1;
    while (end < order.size() && values[order[end]] == values[order[first]]) ++end;
    for (size_t i = first; i < end; ++i) ranks[order[i]] = static_cast<double>(first + end - 1) / 2;
    first = end;
  }
  return ranks;
}
}  // namespace

double pearson_correlation(std::span<const double> a, std::span<const double> b) {
  const auto count = static_cast<double>(a.size());
  const double mean_a = std::accumulate(a.begin(), a.end(), 0.0) / count,
               mean_b = std::accumulate(b.begin(), b.end(), 0.0) / count;
  double both = 0, square_a = 0, square_b = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    both += (a[i] - mean_a) * (b[i] - mean_b);
    square_a += (a[i] - mean_a) * (a[i] - mean_a), square_b += (b[i] - mean_b) * (b[i] - mean_b);
  }
  const double scale = std::sqrt(square_a) * std::sqrt(square_b);
  return scale > 0 ? std::clamp(both / scale, -1.0, 1.0) : 0;
}

double spearman_correlation(std::span<const double> a, std::span<const double> b) {
  return pearson_correlation(ranks_of(a), ranks_of(b));
}

size_t Retrieval::number_of(Texts& texts, const std::string& text, std::span<const float> embedding) const {
  const auto [found, is_new] = texts.numbers.emplace(text, texts.numbers.size());
  if (!is_new) return found->second;
  const double squares = std::inner_product(embedding.begin(), embedding.end(), embedding.begin(), 0.0);
  const auto scale = static_cast<float>(1 / std::sqrt(std::max(squares, 1e-24)));
  for (const float value : embedding) texts.rows.push_back(value * scale);
  return found->second;
}

void Retrieval::add_document(const std::string& text, std::span<const float> embedding) {
  number_of(documents_, text, embedding);
}

void Retrieval::add_pair(const std::string& query, std::span<const float> embedding, const std::string& document,
    std::span<const float> document_embedding) {
  const size_t of = number_of(queries_, query, embedding), found = number_of(documents_, document, document_embedding);
  wanted_.resize(queries_.numbers.size());
  if (!contains(wanted_[of], found)) wanted_[of].push_back(found);
}

std::vector<std::pair<std::string, double>> Retrieval::metrics() const {
  constexpr size_t kBest = 10;
  const size_t count = documents_.numbers.size();
  // Feature by feature, so that a query's cosines use whole vector registers.
  std::vector<float> columns(documents_.rows.size()), cosines(count);
  for (size_t document = 0; document < count; ++document)
    for (size_t i = 0; i < width_; ++i) columns[i * count + document] = documents_.rows[document * width_ + i];
  double reciprocal = 0, gain = 0, first = 0, recall = 0;
  for (size_t query = 0; query < wanted_.size(); ++query) {
    std::ranges::fill(cosines, 0.0f);
    for (size_t i = 0; i < width_; ++i) {
      const float value = queries_.rows[query * width_ + i];
      const float* column = columns.data() + i * count;
      for (size_t document = 0; document < count; ++document) cosines[document] += value * column[document];
    }
    double found = 0, ideal = 0;
    size_t best = count;
    for (const size_t wanted : wanted_[query]) {
      size_t rank = 0;  // documents before it; of equal ones those that came first
      for (size_t document = 0; document < count; ++document)
        rank += cosines[document] > cosines[wanted] || (cosines[document] == cosines[wanted] && document < wanted);
      best = std::min(best, rank);
      if (rank < kBest)
        found += 1 / std::log2(static_cast<double>(rank) + 2),
            recall += 1.0 / static_cast<double>(wanted_[query].size());
      first += rank == 0 ? 1.0 / static_cast<double>(wanted_[query].size()) : 0;
    }
    for (size_t rank = 0; rank < std::min(kBest, wanted_[query].size()); ++rank)
      ideal += 1 / std::log2(static_cast<double>(rank) + 2);
    gain += found / ideal;
    if (best < kBest) reciprocal += 1 / (static_cast<double>(best) + 1);
  }
  const auto queries = static_cast<double>(std::max<size_t>(wanted_.size(), 1));
  return {{"mrr_10", reciprocal / queries}, {"ndcg_10", gain / queries}, {"recall_1", first / queries},
      {"recall_10", recall / queries}};
}
}  // namespace linnet
