// Rows of tokens for next-token training and scoring: inputs x[0..T) and targets x[1..T].
//
// Training takes chunks of a stream without end, in an order that is a pure function of (seed, epoch): each epoch cuts
// the stream at another offset and shuffles the chunks. Nothing as large as the stream is kept, so that a mapped file
// larger than memory works. Scoring takes every token after the first once, in order.
#pragma once
#include <cstdint>
#include <vector>
#include "data/examples/batch.h"
#include "data/examples/text/token_stream.h"

namespace linnet {

// Where a batch of [rows, length] goes. Rows past the last chunk have targets -1.
struct TokenBatch {
  int32_t* tokens;
  int32_t* targets;
  int32_t* positions = nullptr;  // with `starts`: of packed documents
  int32_t* starts = nullptr;
};

// Documents in one stream: each begins with the token `separator` and sees nothing before it. -1: one document.
struct ChunkOptions {
  int64_t rows = 1, length = 1;
  int32_t separator = -1;
  // As a target, the separator ends the document before it (GPT-2's <|endoftext|>). false: documents have an end token
  // of their own (Llama's </s>), and the separator (<s>) is no target.
  bool separator_ends = true;
};

// The key of the random draws of one epoch; `use` tells apart the sequences of one seed.
uint64_t epoch_key(uint64_t seed, uint64_t use, int64_t epoch);

// A bijection of [0, count) that looks random: a Feistel network of four rounds, walked until it lands inside.
class ShuffledIndex {
 public:
  ShuffledIndex(int64_t count, uint64_t key);
  int64_t operator()(int64_t i) const;

 private:
  uint64_t count_, key_;
  int half_bits_ = 1;
};

// The arrays of a batch: tokens and targets [rows, length], and of packed documents positions and starts.
std::vector<BatchInput> token_inputs(const ChunkOptions& options, bool packed);

// The arrays of a batch with these inputs.
TokenBatch token_arrays(OwnedBatch& batch);

class TrainingChunks : public BatchSource {
 public:
  // User error when the stream has no length + 1 tokens.
  TrainingChunks(const TokenStream& stream, const ChunkOptions& options, uint64_t seed, bool packed = false);

  const Batch& next() override;
  void seek(int64_t epoch, int64_t index) override { cursor_.seek(epoch, index, batches_); }
  void take_share(BatchShare share) override { cursor_.take_share(share); }
  int64_t batches_per_epoch() const override { return batches_; }

 private:
  const TokenStream& stream_;
  const ChunkOptions options_;
  const uint64_t seed_;
  int64_t max_offset_, chunks_, batches_;
  BatchCursor cursor_;
  OwnedBatch owned_;
  int64_t made_ = 0;  // batches
};

// Chunks that hold targets [1, stream.size()) once each.
int64_t scoring_batches(const TokenStream& stream, const ChunkOptions& options);
void fill_scoring_batch(const TokenStream& stream, const ChunkOptions& options, int64_t index, const TokenBatch& batch);

struct TargetedTokens {
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;  // what follows each token; -1 is not learned
  bool goes_on = false;          // is of the same conversation as the one before it
};

// Rows that hold several token sequences each, none of which sees another, for training on texts of which only a part
// is learned.
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
  OwnedBatch owned_;
};

}  // namespace linnet
