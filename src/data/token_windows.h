// Rows of tokens for next-token training and scoring: inputs x[0..T) and targets x[1..T].
//
// Training takes windows of a stream without end, in an order that is a pure function of (seed, epoch): each epoch cuts
// the stream at another offset and shuffles the windows. Nothing as large as the stream is kept, so that a mapped file
// larger than memory works. Scoring takes every token after the first once, in order.
#pragma once
#include <cstdint>

#include "data/token_stream.h"

namespace linnet {

// Where a batch of [rows, length] goes. Rows past the last window have targets -1.
struct TokenBatch {
  int32_t* tokens;
  int32_t* targets;
  int32_t* positions = nullptr;  // with `starts`: of packed documents
  int32_t* starts = nullptr;
};

// Documents in one stream: each begins with the token `separator` and sees nothing before it. -1: one document.
struct WindowOptions {
  int64_t rows = 1, length = 1;
  int32_t separator = -1;
  // As a target, the separator ends the document before it (GPT-2's <|endoftext|>). false: documents have an end token
  // of their own (Llama's </s>), and the separator (<s>) is no target.
  bool separator_ends = true;
};

// A bijection of [0, count) that looks random: a Feistel network of four rounds, walked until it lands inside.
class ShuffledIndex {
 public:
  ShuffledIndex(int64_t count, uint64_t key);
  int64_t operator()(int64_t i) const;

 private:
  uint64_t count_, key_;
  int half_bits_ = 1;
};

class TrainingWindows {
 public:
  // User error when the stream has no length + 1 tokens.
  TrainingWindows(const TokenStream& stream, const WindowOptions& options, uint64_t seed);

  struct Place {
    int64_t epoch, index;
    bool last_of_epoch;
  };
  Place next(const TokenBatch& batch);
  void seek(int64_t epoch, int64_t index);
  int64_t batches_per_epoch() const { return batches_; }

 private:
  const TokenStream& stream_;
  const WindowOptions options_;
  const uint64_t seed_;
  int64_t max_offset_, windows_, batches_;
  int64_t epoch_ = 0, index_ = 0;
};

// Windows that hold targets [1, stream.size()) once each.
int64_t scoring_batches(const TokenStream& stream, const WindowOptions& options);
void fill_scoring_batch(const TokenStream& stream, const WindowOptions& options, int64_t index,
                        const TokenBatch& batch);

}  // namespace linnet
