#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include "base/error.h"
#include "base/hash.h"
#include "data/examples/batch_stream.h"

namespace linnet {
namespace {

// Fisher-Yates.
template <typename T>
void shuffle_span(std::span<T> items, uint64_t state) {
  for (size_t left = items.size(); left > 1; --left) std::swap(items[left - 1], items[uniform_below(left, state)]);
}

}  // namespace

BatchOrder::BatchOrder(const PairDataset& dataset, const Buckets& buckets)
    : bucket_of_(dataset.size()), pairs_(dataset.size()), starts_(buckets.size() + 1, 0), cursors_(buckets.size()) {
  if (dataset.size() > std::numeric_limits<int32_t>::max() || buckets.size() > std::numeric_limits<uint16_t>::max())
    fail_user("too many sentence pairs: " + std::to_string(dataset.size()));
  for (int64_t pair = 0; pair < dataset.size(); ++pair) {
    const int bucket = buckets.find(dataset.source_length(pair), dataset.target_length(pair));
    if (bucket < 0)
      fail_internal("no bucket holds pair " + std::to_string(pair) + " of " +
                    std::to_string(dataset.source_length(pair)) + " and " +
                    std::to_string(dataset.target_length(pair)) + " tokens");
    bucket_of_[pair] = static_cast<uint16_t>(bucket);
    ++starts_[bucket + 1];
  }
  int64_t batches = 0;
  for (int64_t bucket = 0; bucket < buckets.size(); ++bucket) {
    rows_.push_back(buckets.shapes()[bucket].batch);
    batches += (starts_[bucket + 1] + rows_[bucket] - 1) / rows_[bucket];
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
  const uint64_t key = mix64(mix64(seed + 0x9e3779b97f4a7c15u) + static_cast<uint64_t>(epoch));
  shuffle_span(std::span(batches_), mix64(key));
  for (size_t bucket = 0; bucket < rows_.size(); ++bucket)
    shuffle_span(std::span(pairs_).subspan(starts_[bucket], starts_[bucket + 1] - starts_[bucket]),
                 mix64(key + bucket + 1));
}

std::span<const int32_t> BatchOrder::pairs(int64_t batch) const {
  const Entry& entry = batches_[batch];
  const int64_t end = std::min<int64_t>(entry.first + rows_[entry.bucket], starts_[entry.bucket + 1]);
  return std::span(pairs_).subspan(entry.first, end - entry.first);
}

size_t BatchOrder::bytes() const {
  return bucket_of_.size() * sizeof(uint16_t) + pairs_.size() * sizeof(int32_t) + batches_.size() * sizeof(Entry);
}

}  // namespace linnet
