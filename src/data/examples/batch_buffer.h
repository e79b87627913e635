// One padded batch and the memory it lies in.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "data/examples/batch.h"
#include "data/examples/buckets.h"
#include "data/examples/text/pair_dataset.h"

namespace linnet {

// The arrays of a batch of pairs, as large as any of these shapes.
std::vector<BatchInput> pair_inputs(std::span<const BatchShape> shapes);

class BatchBuffer {
 public:
  explicit BatchBuffer(const Buckets& buckets);  // fits any of them
  BatchBuffer(BatchBuffer&&) = default;
  // Fills batch() except for epoch, index and last_of_epoch. Never allocates. A pair longer than the bucket is an
  // internal error.
  void fill(const PairDataset& dataset, const Buckets& buckets, int bucket, std::span<const int32_t> pairs);
  PairBatch& batch() { return batch_; }
  const PairBatch& batch() const { return batch_; }
  static size_t bytes(const Buckets& buckets);  // of one buffer

 private:
  std::vector<int32_t> storage_;
  PairBatch batch_;
};

}  // namespace linnet
