// Every pair of a dataset exactly once, bucket by bucket and in order within a bucket. No thread, no randomness.
#pragma once
#include <cstdint>
#include <vector>

#include "data/examples/batch_buffer.h"
#include "data/examples/batch_order.h"

namespace linnet {

class EvaluationBatches {
 public:
  // The dataset must outlive this. A pair that no bucket fits is an internal error.
  EvaluationBatches(const PairDataset& dataset, const Buckets& buckets);
  int64_t size() const { return order_.batch_count(); }
  // Fills the one buffer; valid until the following at(). PairBatch::pairs tells which pairs the rows are.
  const PairBatch& at(int64_t index);
  size_t bytes() const { return BatchBuffer::bytes(buckets_) + order_.bytes(); }

 private:
  const PairDataset& dataset_;
  const Buckets buckets_;
  BatchOrder order_;
  BatchBuffer buffer_;
};

}  // namespace linnet
