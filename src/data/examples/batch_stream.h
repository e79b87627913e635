// Batches of sentence pairs, and the closed set of shapes that they are padded to, chosen for little padding.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>
#include "data/examples/batch.h"
#include "data/examples/text/parallel_text.h"

namespace linnet {

struct BucketOptions {
  int64_t batch_tokens = 4096;  // most tokens in a batch on its longer side, padding included; 0: no such limit
  int64_t batch_size = 0;       // most rows in a batch; 0: no such limit. One of the two must be given
  int64_t num_buckets = 8;      // most shapes
  int64_t max_seq_len = 256;    // no shape is longer
};

class Buckets {
 public:
  // Shapes in increasing order of source + target length, which is also the cost of a row.
  explicit Buckets(std::vector<BatchShape> shapes);

  // Shapes for these (source, target) lengths, each at least 1 and at most max_seq_len; every pair fits one. Depends on
  // the arguments only. Lengths are multiples of 2, or max_seq_len. Fewer than num_buckets shapes where another would
  // not pay for the part-filled batch it adds. Rows: batch_size, or what batch_tokens allows (at least 1), never more
  // than there are pairs; under batch_tokens they are lowered until the batches of a bucket are equally full.
  static Buckets choose(std::span<const std::pair<int, int>> lengths, const BucketOptions& options);

  const std::vector<BatchShape>& shapes() const { return shapes_; }
  int64_t size() const { return std::ssize(shapes_); }
  // The cheapest bucket that fits, or -1.
  int find(int64_t source_length, int64_t target_length) const;

 private:
  std::vector<BatchShape> shapes_;
};

// The arrays of a batch of pairs, as large as any of these shapes.
std::vector<BatchInput> pair_inputs(std::span<const BatchShape> shapes);

// Which pairs make up which batch of an epoch.
class BatchOrder {
 public:
  // Ordered by bucket, then by pair. A pair that no bucket fits is an internal error.
  BatchOrder(const PairDataset& dataset, const Buckets& buckets);

  // Shuffles the pairs within each bucket and then the batches. The result depends on the arguments only, not on
  // earlier calls. Never allocates.
  void shuffle(uint64_t seed, int64_t epoch);

  int64_t batch_count() const { return std::ssize(batches_); }
  int bucket(int64_t batch) const { return batches_[batch].bucket; }
  std::span<const int32_t> pairs(int64_t batch) const;

 private:
  struct Entry {
    int32_t bucket, first;  // first: an index into pairs_
  };
  void sort();

  // 6 bytes a pair and 8 a batch.
  std::vector<uint16_t> bucket_of_;  // by pair
  std::vector<int32_t> pairs_;       // by bucket
  std::vector<int32_t> starts_;      // [buckets + 1], into pairs_
  std::vector<int32_t> cursors_;     // [buckets], scratch of sort()
  std::vector<int64_t> rows_;        // [buckets]
  std::vector<Entry> batches_;
};

// Batches of the pairs of a dataset, which must outlive them: rows of token ids, padded to a shape, with explicit
// lengths. Rows beyond the pairs have length 0; every id beyond a row's length is pad.
class PairBatches {
 protected:
  // A pair that no bucket fits is an internal error.
  PairBatches(const PairDataset& dataset, const Buckets& buckets)
      : dataset_(dataset), buckets_(buckets), order_(dataset, buckets) {}
  // Makes batch `index` of the order, but for its position. Never allocates.
  void fill(int64_t index, OwnedBatch& owned) const;

  const PairDataset& dataset_;
  const Buckets buckets_;
  BatchOrder order_;
};

// Training batches. An epoch has every pair once: pairs are shuffled within their bucket and cut into batches (the last
// of a bucket may have padded rows), then the batches are shuffled. A worker thread fills a ring of buffers; once the
// constructor has returned neither it nor next() allocates.
class BatchStream : public BatchSource, PairBatches {
 public:
  // prefetch_depth >= 1 batches are kept ready besides the one in use. Starts at epoch 0, batch 0.
  BatchStream(const PairDataset& dataset, const Buckets& buckets, uint64_t seed, int prefetch_depth = 2);

  void seek(int64_t epoch, int64_t index) override;
  void take_share(BatchShare share) override;
  // Waits for the worker. An exception in the worker reappears here, at its place in the sequence and until seek() is
  // called.
  const Batch& next() override { return ring_[static_cast<size_t>(ahead_->next())].batch; }
  int64_t shape_count() const override { return buckets_.size(); }
  int64_t batches_per_epoch() const override { return order_.batch_count(); }  // the same in every epoch

 private:
  struct Slot : OwnedBatch {
    using OwnedBatch::OwnedBatch;
    BatchCursor::Taken taken;
  };
  void make(Slot& slot);

  const uint64_t seed_;
  int64_t ordered_epoch_ = -1;
  BatchCursor cursor_;
  std::vector<Slot> ring_;
  std::optional<BatchesAhead> ahead_;  // last: its thread uses all of the above
};

// Every pair of a dataset exactly once, bucket by bucket and in order within a bucket. No thread, no randomness.
class EvaluationBatches : PairBatches {
 public:
  EvaluationBatches(const PairDataset& dataset, const Buckets& buckets)
      : PairBatches(dataset, buckets), owned_(pair_inputs(buckets.shapes())) {}
  int64_t size() const { return order_.batch_count(); }
  // Fills the one buffer; valid until the following at().
  const Batch& at(int64_t index);

 private:
  OwnedBatch owned_;
};

}  // namespace linnet
