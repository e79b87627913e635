#include "data/examples/evaluation_batches.h"

#include <string>

#include "base/error.h"

namespace linnet {

EvaluationBatches::EvaluationBatches(const PairDataset& dataset, const Buckets& buckets)
    : dataset_(dataset), buckets_(buckets), order_(dataset, buckets), buffer_(buckets) {}

const PairBatch& EvaluationBatches::at(int64_t index) {
  if (index < 0 || index >= size()) fail_internal("evaluation batch " + std::to_string(index) + " does not exist");
  buffer_.fill(dataset_, buckets_, order_.bucket(index), order_.pairs(index));
  buffer_.batch().index = index;
  buffer_.batch().last_of_epoch = index + 1 == size();
  return buffer_.batch();
}

}  // namespace linnet
