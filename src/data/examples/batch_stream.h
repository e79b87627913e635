// Training batches without end, in an order that is a pure function of (seed, epoch) and the same on every machine.
//
// An epoch has every pair once: pairs are shuffled within their bucket and cut into batches (the last of a bucket may
// have padded rows), then the batches are shuffled. A worker thread fills a ring of buffers; once the constructor has
// returned neither it nor next() allocates.
#pragma once
#include <cstdint>
#include <memory>

#include "data/examples/batch_source.h"
#include "data/examples/buckets.h"
#include "data/examples/text/pair_dataset.h"

namespace linnet {

class BatchStream : public BatchSource {
 public:
  // The dataset must outlive the stream. prefetch_depth >= 1 batches are kept ready besides the one in use.
  // Starts at epoch 0, batch 0. A pair that no bucket fits is an internal error.
  BatchStream(const PairDataset& dataset, const Buckets& buckets, uint64_t seed, int prefetch_depth = 2);
  ~BatchStream() override;
  BatchStream(const BatchStream&) = delete;
  BatchStream& operator=(const BatchStream&) = delete;

  void seek(int64_t epoch, int64_t index) override;
  void take_share(BatchShare share) override;
  // Waits for the worker. An exception in the worker reappears here, at its place in the sequence and until seek() is
  // called.
  const PairBatch& next() override;
  int64_t shape_count() const override;
  int64_t batches_per_epoch() const override;  // the same in every epoch

  size_t buffer_bytes() const;  // of the ring; fixed and touched from the constructor on
  static size_t buffer_bytes(const Buckets& buckets, int prefetch_depth);  // the same, predicted
  size_t order_bytes() const;  // of the permutation: 6 bytes a pair and 8 a batch

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace linnet
