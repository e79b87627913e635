#include "data/examples/buckets.h"
#include <algorithm>
#include <map>
#include <tuple>
#include "base/error.h"
#include "base/numbers.h"

namespace linnet {
namespace {

// On Multi30k 16 shapes pad 11% of a batch at multiples of 4 and 9% at 2; 32 shapes 9.5% and 6%. 1 gains no more.
constexpr int64_t kLengthMultiple = 2;
constexpr size_t kMostCells = 512;  // merging takes time in the square of this

// Some pairs that are padded to one shape.
struct Cell {
  int64_t source, target, pairs;
};

class Chooser {
 public:
  Chooser(std::span<const std::pair<int, int>> lengths, const BucketOptions& options) : options_(options) {
    for (const auto& [source, target] : lengths)
      if (source < 1 || target < 1 || source > options.max_seq_len || target > options.max_seq_len)
        fail_internal("buckets: a pair of " + std::to_string(source) + " and " + std::to_string(target) +
                      " tokens, outside 1.." + std::to_string(options.max_seq_len));
    std::map<std::pair<int64_t, int64_t>, int64_t> counts;
    const auto rounded = [&](int64_t length) {
      return std::min(ceil_div(length, kLengthMultiple) * kLengthMultiple, options.max_seq_len);
    };
    for (const auto& [source, target] : lengths) ++counts[{rounded(source), rounded(target)}];
    int64_t tokens = 0;
    for (const auto& [shape, pairs] : counts) {
      fine_.push_back({shape.first, shape.second, pairs});
      tokens += pairs * (shape.first + shape.second);
    }
    // A batch costs an optimizer step and, part-filled, weighs its few pairs like many: a quarter of a full batch.
    const auto pairs = static_cast<int64_t>(lengths.size());
    batch_overhead_ =
        options.batch_tokens > 0 ? options.batch_tokens / 2 : std::min(options.batch_size, pairs) * tokens / pairs / 4;
  }

  std::vector<BatchShape> choose() const {
    int64_t multiple = kLengthMultiple;
    std::vector<Cell> coarse = cells(multiple);
    while (coarse.size() > kMostCells) coarse = cells(multiple *= 2);
    std::vector<BatchShape> shapes;
    for (const Cell& shape : fit(merge(std::move(coarse)))) {
      int64_t rows = most_rows(shape);
      if (options_.batch_tokens > 0) rows = ceil_div(shape.pairs, ceil_div(shape.pairs, rows));
      shapes.push_back({rows, shape.source, shape.target});
    }
    return shapes;
  }

 private:
  // The pairs grouped by lengths rounded up to a larger multiple.
  std::vector<Cell> cells(int64_t multiple) const {
    std::map<std::pair<int64_t, int64_t>, Cell> groups;
    for (const Cell& cell : fine_) {
      const auto [at, added] =
          groups.try_emplace({ceil_div(cell.source, multiple), ceil_div(cell.target, multiple)}, cell);
      if (!added) at->second = joined(at->second, cell);
    }
    std::vector<Cell> result;
    for (const auto& [key, cell] : groups) result.push_back(cell);
    return result;
  }

  // Joins the two clusters whose union costs least more, again and again: until there are few enough, and on while it
  // saves. Each cluster remembers its best partner, so that a round is rarely more than one pass.
  std::vector<Cell> merge(std::vector<Cell> clusters) const {
    struct Partner {
      size_t index;
      int64_t increase;
    };
    std::vector<int64_t> costs;
    for (const Cell& cluster : clusters) costs.push_back(cost(cluster));
    const auto increase = [&](size_t a, size_t b) {
      return cost(joined(clusters[a], clusters[b])) - costs[a] - costs[b];
    };
    const auto best_partner = [&](size_t a) {
      Partner best{a, INT64_MAX};
      for (size_t b = 0; b < clusters.size(); ++b)
        if (b != a && clusters[b].pairs > 0)
          if (const int64_t value = increase(a, b); value < best.increase) best = {b, value};
      return best;
    };
    std::vector<Partner> partners;
    for (size_t a = 0; a < clusters.size(); ++a) partners.push_back(best_partner(a));

    for (int64_t left = static_cast<int64_t>(clusters.size()); left > 1; --left) {
      size_t a = clusters.size();
      for (size_t i = 0; i < clusters.size(); ++i)
        if (clusters[i].pairs > 0 && (a == clusters.size() || partners[i].increase < partners[a].increase)) a = i;
      if (left <= options_.num_buckets && partners[a].increase >= 0) break;
      const size_t b = partners[a].index;
      clusters[a] = joined(clusters[a], clusters[b]);
      clusters[b].pairs = 0;
      costs[a] = cost(clusters[a]);
      partners[a] = best_partner(a);
      for (size_t i = 0; i < clusters.size(); ++i) {
        if (i == a || clusters[i].pairs == 0) continue;
        if (partners[i].index == a || partners[i].index == b) {
          partners[i] = best_partner(i);
        } else if (const int64_t value = increase(i, a); value < partners[i].increase) {
          partners[i] = {a, value};
        }
      }
    }
    std::erase_if(clusters, [](const Cell& cluster) { return cluster.pairs == 0; });
    return clusters;
  }

  // Gives every pair to the cheapest shape that holds it, then shrinks the shapes to what they were given, until
  // nothing changes. No pair's cost ever grows.
  std::vector<Cell> fit(std::vector<Cell> shapes) const {
    const auto by_cost = [](const Cell& a, const Cell& b) {
      return std::tuple(a.source + a.target, a.source) < std::tuple(b.source + b.target, b.source);
    };
    for (bool changed = true; changed;) {
      std::sort(shapes.begin(), shapes.end(), by_cost);
      std::vector<Cell> tight(shapes.size(), Cell{0, 0, 0});
      for (const Cell& cell : fine_) {
        size_t i = 0;
        while (shapes[i].source < cell.source || shapes[i].target < cell.target) ++i;
        tight[i] = joined(tight[i], cell);
      }
      std::erase_if(tight, [](const Cell& shape) { return shape.pairs == 0; });
      changed = !std::equal(tight.begin(), tight.end(), shapes.begin(), shapes.end(), [](const Cell& a, const Cell& b) {
        return a.source == b.source && a.target == b.target && a.pairs == b.pairs;
      });
      shapes = std::move(tight);
    }
    return shapes;
  }

  int64_t most_rows(const Cell& shape) const {
    int64_t rows = shape.pairs;
    if (options_.batch_size > 0) rows = std::min(rows, options_.batch_size);
    if (options_.batch_tokens > 0) rows = std::min(rows, options_.batch_tokens / std::max(shape.source, shape.target));
    return std::max<int64_t>(rows, 1);
  }

  // An epoch of these pairs, in padded tokens.
  int64_t cost(const Cell& cell) const {
    return cell.pairs * (cell.source + cell.target) + ceil_div(cell.pairs, most_rows(cell)) * batch_overhead_;
  }

  static Cell joined(const Cell& a, const Cell& b) {
    return {std::max(a.source, b.source), std::max(a.target, b.target), a.pairs + b.pairs};
  }

  const BucketOptions& options_;
  std::vector<Cell> fine_;      // lengths rounded up to kLengthMultiple
  int64_t batch_overhead_ = 0;  // what a further batch costs, in tokens
};

}  // namespace

Buckets::Buckets(std::vector<BatchShape> shapes) : shapes_(std::move(shapes)) {
  if (shapes_.empty()) fail_internal("buckets: no shapes");
  for (const BatchShape& shape : shapes_)
    if (shape.batch < 1 || shape.source_length < 1 || shape.target_length < 1)
      fail_internal("buckets: a shape without elements");
  std::sort(shapes_.begin(), shapes_.end(), [](const BatchShape& a, const BatchShape& b) {
    const int64_t cost_a = a.source_length + a.target_length, cost_b = b.source_length + b.target_length;
    return cost_a != cost_b ? cost_a < cost_b : a.source_length < b.source_length;
  });
}

Buckets Buckets::choose(std::span<const std::pair<int, int>> lengths, const BucketOptions& options) {
  if (lengths.empty()) fail_internal("buckets: no pairs");
  if (options.num_buckets < 1 || options.batch_tokens < 0 || options.batch_size < 0)
    fail_internal("buckets: options out of range");
  if (options.batch_tokens == 0 && options.batch_size == 0) fail_user("batch_size and batch_tokens are both 0");
  return Buckets(Chooser(lengths, options).choose());
}

int Buckets::find(int64_t source_length, int64_t target_length) const {
  for (size_t i = 0; i < shapes_.size(); ++i)
    if (source_length <= shapes_[i].source_length && target_length <= shapes_[i].target_length)
      return static_cast<int>(i);
  return -1;
}

}  // namespace linnet
