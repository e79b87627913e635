// Which pairs make up which batch of an epoch.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "data/examples/buckets.h"
#include "data/examples/text/pair_dataset.h"

namespace linnet {

class BatchOrder {
 public:
  // Ordered by bucket, then by pair. A pair that no bucket fits is an internal error.
  BatchOrder(const PairDataset& dataset, const Buckets& buckets);

  // Shuffles the pairs within each bucket and then the batches. The result depends on the arguments only, not on
  // earlier calls. Never allocates.
  void shuffle(uint64_t seed, int64_t epoch);

  int64_t batch_count() const { return static_cast<int64_t>(batches_.size()); }
  int bucket(int64_t batch) const { return batches_[batch].bucket; }
  std::span<const int32_t> pairs(int64_t batch) const;
  size_t bytes() const;

 private:
  struct Entry {
    int32_t bucket, first;  // first: an index into pairs_
  };
  void sort();

  std::vector<uint16_t> bucket_of_;  // by pair
  std::vector<int32_t> pairs_;       // by bucket
  std::vector<int32_t> starts_;      // [buckets + 1], into pairs_
  std::vector<int32_t> cursors_;     // [buckets], scratch of sort()
  std::vector<int64_t> rows_;        // [buckets]
  std::vector<Entry> batches_;
};

}  // namespace linnet
