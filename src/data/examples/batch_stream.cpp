#include "data/examples/batch_stream.h"
#include <algorithm>
#include <limits>
#include <map>
#include "base/fail.h"
#include "base/functions.h"
#include "base/numbers.h"

namespace linnet {
namespace {
// Padding of a batch on Multi30k: 16 shapes 11% at multiples of 4, 9% at 2; 32 shapes 9.5% and 6%. 1 gains no more.
constexpr int64_t kLengthMultiple = 2;
constexpr size_t kMostCells = 512;  // merging takes time in the square of this

// Pairs that are padded to one shape.
struct Cell {
  int64_t source = 0, target = 0, pairs = 0;
  bool operator==(const Cell&) const = default;
};

class Chooser {
 public:
  Chooser(std::span<const std::pair<int, int>> lengths, const BucketOptions& options) : options_(options) {
    for (const auto& [source, target] : lengths)
      if (source < 1 || target < 1 || source > options.max_seq_len || target > options.max_seq_len)
        fail_internal("buckets: a pair of ", source, " and ", target, " tokens, outside 1..", options.max_seq_len);
    std::map<std::pair<int64_t, int64_t>, int64_t> counts;
    const auto rounded = [&](int64_t length) {
      return std::min(round_up(length, kLengthMultiple), options.max_seq_len);
    };
    for (const auto& [source, target] : lengths) ++counts[{rounded(source), rounded(target)}];
    int64_t tokens = 0;
    for (const auto& [shape, pairs] : counts) {
      fine_.push_back({shape.first, shape.second, pairs});
      tokens += pairs * (shape.first + shape.second);
    }
    // A part-filled batch costs an optimizer step for few pairs: it counts a quarter of a full batch.
    const auto pairs = std::ssize(lengths);
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
  std::vector<Cell> cells(int64_t multiple) const {
    std::map<std::pair<int64_t, int64_t>, Cell> groups;
    for (const Cell& cell : fine_) {
      Cell& group = groups[{ceil_div(cell.source, multiple), ceil_div(cell.target, multiple)}];
      group = joined(group, cell);
    }
    return mapped(groups, [](const auto& group) { return group.second; });
  }

  // Repeatedly joins the two clusters whose union costs least: until there are few enough, and on while it saves. Each
  // cluster remembers its best partner, so that a round is rarely more than one pass.
  std::vector<Cell> merge(std::vector<Cell> clusters) const {
    struct Partner {
      size_t index;
      int64_t increase;
    };
    std::vector<int64_t> costs = mapped(clusters, [&](const Cell& cluster) { return cost(cluster); });
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
    std::vector<Partner> partners = mapped(clusters.size(), best_partner);
    for (int64_t left = std::ssize(clusters); left > 1; --left) {
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

  // Assigns every pair to the cheapest shape that holds it and shrinks the shapes to their pairs, until nothing
  // changes. No pair's cost ever grows.
  std::vector<Cell> fit(std::vector<Cell> shapes) const {
    for (bool changed = true; changed;) {
      std::ranges::sort(shapes, {}, [](const Cell& cell) { return std::pair(cell.source + cell.target, cell.source); });
      std::vector<Cell> tight(shapes.size());
      for (const Cell& cell : fine_) {
        size_t i = 0;
        while (shapes[i].source < cell.source || shapes[i].target < cell.target) ++i;
        tight[i] = joined(tight[i], cell);
      }
      std::erase_if(tight, [](const Cell& shape) { return shape.pairs == 0; });
      changed = tight != shapes;
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

  int64_t cost(const Cell& cell) const {  // of an epoch, in padded tokens
    return cell.pairs * (cell.source + cell.target) + ceil_div(cell.pairs, most_rows(cell)) * batch_overhead_;
  }

  static Cell joined(const Cell& a, const Cell& b) {
    return {std::max(a.source, b.source), std::max(a.target, b.target), a.pairs + b.pairs};
  }

  const BucketOptions& options_;
  std::vector<Cell> fine_;      // lengths rounded up to kLengthMultiple
  int64_t batch_overhead_ = 0;  // what a further batch costs, in tokens
};

// Copies the ids and pads the rest of the row.
void write_row(std::span<const TokenId> ids, std::span<int32_t> rows, int64_t row, int64_t length) {
  const auto to = rows.begin() + row * length;
  std::fill(std::ranges::copy(ids, to).out, to + length, SpecialTokens{}.pad);
}
}  // namespace

Buckets::Buckets(std::vector<BatchShape> shapes) : shapes_(std::move(shapes)) {
  if (shapes_.empty()) fail_internal("buckets: no shapes");
  for (const BatchShape& shape : shapes_)
    if (shape.batch < 1 || shape.source_length < 1 || shape.target_length < 1)
      fail_internal("buckets: a shape without elements");
  std::ranges::sort(shapes_, {}, [](const BatchShape& shape) {
    return std::pair(shape.source_length + shape.target_length, shape.source_length);
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

std::vector<BatchInput> pair_inputs(std::span<const BatchShape> shapes) {
  int64_t rows = 0, source = 0, target = 0;
  for (const BatchShape& shape : shapes) {
    rows = std::max(rows, shape.batch);
    source = std::max(source, shape.batch * shape.source_length);
    target = std::max(target, shape.batch * shape.target_length);
  }
  return {number_input("source", source), number_input("source_lengths", rows), number_input("target_in", target),
      number_input("target_out", target), number_input("target_lengths", rows)};
}

void PairBatches::fill(int64_t index, OwnedBatch& owned) const {
  const int bucket = order_.bucket(index);
  const auto [rows, source_length, target_length] = buckets_.shapes()[bucket];
  const std::span<const int32_t> pairs = order_.pairs(index);
  owned.batch.shape_index = bucket;
  auto take_next = [&, input = size_t{0}](int64_t count) mutable {
    owned.resize(input, count);
    return std::span(owned.data(input++), static_cast<size_t>(count));
  };
  const auto source = take_next(rows * source_length), source_lengths = take_next(rows),
             target_in = take_next(rows * target_length), target_out = take_next(rows * target_length),
             target_lengths = take_next(rows);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t pair = row < std::ssize(pairs) ? pairs[row] : -1;
    using Ids = std::span<const TokenId>;
    write_row(pair < 0 ? Ids{} : dataset_.source(pair), source, row, source_length);
    write_row(pair < 0 ? Ids{} : dataset_.target_in(pair), target_in, row, target_length);
    write_row(pair < 0 ? Ids{} : dataset_.target_out(pair), target_out, row, target_length);
    source_lengths[row] = pair < 0 ? 0 : static_cast<int32_t>(dataset_.source_length(pair));
    target_lengths[row] = pair < 0 ? 0 : static_cast<int32_t>(dataset_.target_length(pair));
  }
}

BatchOrder::BatchOrder(const PairDataset& dataset, const Buckets& buckets)
    : bucket_of_(dataset.size()), pairs_(dataset.size()), starts_(buckets.size() + 1, 0), cursors_(buckets.size()) {
  if (dataset.size() > std::numeric_limits<int32_t>::max() || buckets.size() > std::numeric_limits<uint16_t>::max())
    fail_user("too many sentence pairs: ", dataset.size());
  for (int64_t pair = 0; pair < dataset.size(); ++pair) {
    const int bucket = buckets.find(dataset.source_length(pair), dataset.target_length(pair));
    if (bucket < 0)
      fail_internal("no bucket holds pair ", pair, " of ", dataset.source_length(pair), " and ",
          dataset.target_length(pair), " tokens");
    bucket_of_[pair] = static_cast<uint16_t>(bucket);
    ++starts_[bucket + 1];
  }
  int64_t batches = 0;
  for (int64_t bucket = 0; bucket < buckets.size(); ++bucket) {
    rows_.push_back(buckets.shapes()[bucket].batch);
    batches += ceil_div(starts_[bucket + 1], rows_[bucket]);
    starts_[bucket + 1] += starts_[bucket];
  }
  batches_.resize(batches);
  sort();
}

void BatchOrder::sort() {
  std::copy(starts_.begin(), starts_.end() - 1, cursors_.begin());
  for (size_t pair = 0; pair < bucket_of_.size(); ++pair)
    pairs_[cursors_[bucket_of_[pair]]++] = static_cast<int32_t>(pair);
  size_t batch = 0;
  for (size_t bucket = 0; bucket < rows_.size(); ++bucket)
    for (int64_t first = starts_[bucket]; first < starts_[bucket + 1]; first += rows_[bucket])
      batches_[batch++] = {static_cast<int32_t>(bucket), static_cast<int32_t>(first)};
}

void BatchOrder::shuffle(uint64_t seed, int64_t epoch) {
  sort();
  const uint64_t key = order_key(seed, epoch);
  shuffle_span(std::span(batches_), mix64(key));
  for (size_t bucket = 0; bucket < rows_.size(); ++bucket)
    shuffle_span(
        std::span(pairs_).subspan(starts_[bucket], starts_[bucket + 1] - starts_[bucket]), mix64(key + bucket + 1));
}

std::span<const int32_t> BatchOrder::pairs(int64_t batch) const {
  const Entry& entry = batches_[batch];
  const int64_t end = std::min<int64_t>(entry.first + rows_[entry.bucket], starts_[entry.bucket + 1]);
  return std::span(pairs_).subspan(entry.first, end - entry.first);
}

BatchStream::BatchStream(const PairDataset& dataset, const Buckets& buckets, uint64_t seed, int prefetch_depth)
    : PairBatches(dataset, buckets), seed_(seed) {
  for (int i = 0; i <= prefetch_depth; ++i) ring_.emplace_back(pair_inputs(buckets.shapes()));
  const auto plan = [this](int slot) {
    cursor_.check(order_.batch_count());
    ring_[slot].taken = cursor_.take([this](int64_t) { return order_.batch_count(); });
    return int64_t{1};
  };
  const auto make = [this](int slot, int64_t, int) { this->make(ring_[slot]); };
  ahead_.emplace(prefetch_depth + 1, 1, BatchesAhead::Work{plan, make});
}

void BatchStream::make(Slot& slot) {
  const BatchCursor::Taken& taken = slot.taken;
  if (ordered_epoch_ != taken.epoch) order_.shuffle(seed_, ordered_epoch_ = taken.epoch);
  static_cast<BatchPosition&>(slot.batch) = taken.position;
  fill(taken.index, slot);
}

void BatchStream::take_share(BatchShare share) {
  ahead_->restart([&] { cursor_.take_share(share); });
}

const Batch& EvaluationBatches::at(int64_t index) {
  if (index < 0 || index >= size()) fail_internal("evaluation batch ", index, " does not exist");
  fill(index, owned_);
  owned_.batch.index = index;
  owned_.batch.last_of_epoch = index + 1 == size();
  return owned_.batch;
}
}  // namespace linnet
