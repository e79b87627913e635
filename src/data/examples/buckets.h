// The closed set of shapes that batches are padded to, chosen for little padding.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>
#include "data/examples/batch.h"

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
  int64_t size() const { return static_cast<int64_t>(shapes_.size()); }
  // The cheapest bucket that fits, or -1.
  int find(int64_t source_length, int64_t target_length) const;

 private:
  std::vector<BatchShape> shapes_;
};

}  // namespace linnet
