// One padded batch and the memory it lies in.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "data/batch.h"
#include "data/buckets.h"
#include "data/pair_dataset.h"

namespace linnet {

// Views of a buffer. Rows beyond the pairs have length 0 and pair -1; every id beyond a row's length is pad.
struct Batch {
  int bucket = 0;
  BatchShape shape{};
  int64_t epoch = 0, index = 0;                    // index of this batch in its epoch
  std::span<const int32_t> source;                 // [batch, source_length]
  std::span<const int32_t> source_lengths;         // [batch]
  std::span<const int32_t> target_in, target_out;  // [batch, target_length]
  std::span<const int32_t> target_lengths;         // [batch], of both
  std::span<const int32_t> pairs;                  // [batch] which pair of the dataset each row is
  int64_t source_tokens = 0, target_tokens = 0;    // without padding
  bool last_of_epoch = false;
};

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
