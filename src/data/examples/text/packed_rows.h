// Rows that hold several token sequences each, none of which sees another, for training on texts of which only a part
// is learned.
#pragma once
#include <cstdint>
#include <vector>
#include "data/examples/text/token_chunks.h"

namespace linnet {

struct TargetedTokens {
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;  // what follows each token; -1 is not learned
  bool goes_on = false;          // is of the same conversation as the one before it
};

class PackedRows : public BatchSource {
 public:
  // Sequences are put into as few rows of options.length as best fit finds, the longest first; none is longer than a
  // row. Batches have the arrays of token_inputs(options, true). Which sequences share a row does not change from one
  // epoch to the next; the order of rows is a function of (seed, epoch). Data must outlive this.
  PackedRows(const std::vector<TargetedTokens>& data, const ChunkOptions& options, uint64_t seed);

  const Batch& next() override;
  void seek(int64_t epoch, int64_t index) override { cursor_.seek(epoch, index, batches_per_epoch()); }
  void take_share(BatchShare share) override { cursor_.take_share(share); }
  int64_t batches_per_epoch() const override { return (row_count() + options_.rows - 1) / options_.rows; }

  int64_t row_count() const { return static_cast<int64_t>(rows_.size()); }
  // For evaluation: every row once. Valid as long as a batch of next().
  const Batch& ordered_batch(int64_t index);

 private:
  // The rows order(first), order(first + 1), ...
  template <class Order>
  void fill(int64_t first, const Order& order);

  const std::vector<TargetedTokens>& data_;
  const ChunkOptions options_;
  const uint64_t seed_;
  std::vector<std::vector<size_t>> rows_;  // the sequences of each
  BatchCursor cursor_;
  TokenBuffer buffer_;
};

}  // namespace linnet
