// Batches of sentence pairs, padded to a closed set of shapes that are chosen for little padding.
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
  // In increasing order of source + target length, the cost of a row.
  explicit Buckets(std::vector<BatchShape> shapes);

  // Shapes for these (source, target) lengths, each in [1, max_seq_len]; every pair fits one. A pure function of the
  // arguments. Lengths are multiples of 2, or max_seq_len. There are fewer than num_buckets shapes if another would not
  // pay for the part-filled batch it adds. Rows: batch_size, or what batch_tokens allows (at least 1), at most the
  // number of pairs; under batch_tokens they are lowered until a bucket's batches are equally full.
  static Buckets choose(std::span<const std::pair<int, int>> lengths, const BucketOptions& options);

  const std::vector<BatchShape>& shapes() const { return shapes_; }
  int64_t size() const { return std::ssize(shapes_); }
  int find(int64_t source_length, int64_t target_length) const;  // the cheapest bucket that fits, or -1

 private:
  std::vector<BatchShape> shapes_;
};

// The arrays of a batch of pairs, for the largest of these shapes.
std::vector<BatchInput> pair_inputs(std::span<const BatchShape> shapes);

// The pairs of each batch of an epoch.
class BatchOrder {
 public:
  // Ordered by bucket, then by pair. Internal error if a pair fits no bucket.
  BatchOrder(const PairDataset& dataset, const Buckets& buckets);

  // Shuffles the pairs within each bucket and then the batches: a pure function of the arguments. Never allocates.
  void shuffle(uint64_t seed, int64_t epoch);

  int64_t batch_count() const { return std::ssize(batches_); }
  int bucket(int64_t batch) const { return batches_[batch].bucket; }
  std::span<const int32_t> pairs(int64_t batch) const;

 private:
  struct Entry {
    int32_t bucket, first;  // first: an index into pairs_
  };
  void sort();

  // 6 bytes a pair and 8 a batch
  std::vector<uint16_t> bucket_of_;  // by pair
  std::vector<int32_t> pairs_;       // by bucket
  std::vector<int32_t> starts_;      // [buckets + 1], into pairs_
  std::vector<int32_t> cursors_;     // [buckets], scratch of sort()
  std::vector<int64_t> rows_;        // [buckets]
  std::vector<Entry> batches_;
};

// Batches of the pairs of a dataset, which must outlive them: rows of token ids padded to a shape, with explicit
// lengths. Rows beyond the pairs have length 0; ids beyond a row's length are pad.
class PairBatches {
 protected:
  // Internal error if a pair fits no bucket.
  PairBatches(const PairDataset& dataset, const Buckets& buckets)
      : dataset_(dataset), buckets_(buckets), order_(dataset, buckets) {}
  // Makes batch `index` of the order, except for its position. Never allocates.
  void fill(int64_t index, OwnedBatch& owned) const;

  const PairDataset& dataset_;
  const Buckets buckets_;
  BatchOrder order_;
};

// Training batches. An epoch has every pair once: pairs are shuffled within their bucket and cut into batches (a
// bucket's last may have padded rows), then batches are shuffled. A worker thread fills a ring of buffers. After the
// constructor neither it nor next() allocates.
class BatchStream : public BatchSource, PairBatches {
 public:
  // Keeps prefetch_depth >= 1 batches ready besides the one in use. Starts at epoch 0, batch 0.
  BatchStream(const PairDataset& dataset, const Buckets& buckets, uint64_t seed, int prefetch_depth = 2);

  void seek(int64_t epoch, int64_t index) override {
    ahead_->restart([&] { cursor_.set(epoch, index); });
  }
  void take_share(BatchShare share) override;
  // Waits for the worker. Rethrows the worker's exception at its position, until seek().
  const Batch& next() override { return ring_[ahead_->next()].batch; }
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

// Every pair of a dataset once, bucket by bucket and in order within one. No thread, no randomness.
class EvaluationBatches : PairBatches {
 public:
  EvaluationBatches(const PairDataset& dataset, const Buckets& buckets)
      : PairBatches(dataset, buckets), owned_(pair_inputs(buckets.shapes())) {}
  int64_t size() const { return order_.batch_count(); }
  const Batch& at(int64_t index);  // fills the one buffer; valid until the next at()

 private:
  OwnedBatch owned_;
};
}  // namespace linnet
