// One padded batch and the memory it lies in.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "data/batch.h"
#include "data/buckets.h"
#include "data/pair_dataset.h"

namespace linnet {

class BatchBuffer {
 public:
  explicit BatchBuffer(const Buckets& buckets);  // fits any of them
  BatchBuffer(BatchBuffer&&) = default;
  // Fills batch() except for epoch, index and last_of_epoch. Never allocates. A pair longer than the bucket is an
  // internal error.
  void fill(const PairDataset& dataset, const Buckets& buckets, int bucket, std::span<const int32_t> pairs);
  Batch& batch() { return batch_; }
  const Batch& batch() const { return batch_; }
  static size_t bytes(const Buckets& buckets);  // of one buffer

 private:
  std::vector<int32_t> storage_;
  Batch batch_;
};

}  // namespace linnet
