#include "data/metrics/correlation.h"
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace linnet {
namespace {

std::vector<double> ranks_of(std::span<const double> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
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

}  // namespace linnet
