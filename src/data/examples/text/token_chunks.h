// A long stream of tokens, in memory or in a mapped file of 16- or 32-bit numbers that may exceed memory, and its rows
// for next-token training and scoring: inputs x[0..T) and targets x[1..T]. Training takes endless chunks in an order
// that is a pure function of (seed, epoch): each epoch cuts the stream at another offset and shuffles the chunks;
// nothing as large as the stream is kept. Scoring takes every token after the first once, in order.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>
#include "base/functions.h"
#include "data/examples/batch.h"

namespace linnet {
class TokenStream {
 public:
  // Tokens in [0, vocab_size), stored in 16 bits each if that is enough.
  TokenStream(const std::vector<int32_t>& tokens, int64_t vocab_size);
  // A file of little-endian numbers of `bytes_each` (2 or 4) alone. User error if its size is no multiple.
  TokenStream(const std::string& path, int bytes_each, int64_t vocab_size);

  int64_t size() const { return size_; }
  // Tokens [first, first + count). User error with the position of a token outside the vocabulary.
  void read(int64_t first, int64_t count, int32_t* out) const;
  // The part [first, first + count) as a stream of the same memory.
  TokenStream part(int64_t first, int64_t count) const;
  // Gives a mapped file's pages back, so that they do not count as this process's memory.
  void drop_pages() const;

 private:
  struct Storage;

  std::shared_ptr<const Storage> storage_;
  const void* data_ = nullptr;
  int bytes_each_ = 2;
  int64_t size_ = 0, vocab_size_ = 0, first_ = 0;  // first_: of the file, for messages
};

// Whether there are several documents: a folder, or a file of records by its name (record_reader.h), one document each.
// A .json file may also be a list of objects.
bool has_documents(const std::string& path);

// Calls `document` with each document: the field `key` of each record, or any other file whole, with line ends "\n";
// for a folder, of the text files in it and below, by name. Plain or gzip, UTF-8. User errors name file and line.
void read_documents(const std::string& path, const std::string& key, FunctionRef<void(std::string text)> document);

// Documents in a stream begin with the token `separator` and see nothing before it. -1: one document.
struct ChunkOptions {
  int64_t rows = 1, length = 1;
  int32_t separator = -1;
  // As a target, the separator ends the previous document (GPT-2's <|endoftext|>). false: documents have their own end
  // token (Llama's </s>), and the separator (<s>) is no target.
  bool separator_ends = true;
};

// A pseudo-random bijection of [0, count): a Feistel network of four rounds, repeated until it lands inside.
class ShuffledIndex {
 public:
  ShuffledIndex(int64_t count, uint64_t key);
  int64_t operator()(int64_t i) const;

 private:
  uint64_t count_, key_;
  int half_bits_ = 1;
};

// Puts rows of similar length together: shuffles, sorts by length within pools of batches, and shuffles the batches.
// Appends row_of(i) of each i in [0, count) to `order`; returns where each batch of `rows` begins in it.
template <class Row, class RowOf, class SizeOf> std::vector<int64_t> order_by_length(
    int64_t count, int64_t rows, uint64_t key, std::vector<Row>& order, const RowOf& row_of, const SizeOf& size_of) {
  constexpr int64_t kBatchesOfPool = 32;
  const int64_t batches = ceil_div(count, rows);
  const ShuffledIndex shuffled(count, key), shuffled_batches(batches, mix64(key + 1));
  order.reserve(count);
  for (int64_t i = 0; i < count; ++i) order.push_back(row_of(shuffled(i)));
  for (int64_t begin = 0; begin < count; begin += kBatchesOfPool * rows)
    std::ranges::stable_sort(
        order.begin() + begin, order.begin() + std::min(count, begin + kBatchesOfPool * rows), {}, size_of);
  return mapped(batches, [&](int64_t i) { return shuffled_batches(i) * rows; });
}

// The arrays of a batch: tokens and targets [rows, length]; if packed also positions and starts. Rows past the last
// chunk have targets -1.
std::vector<BatchInput> token_inputs(const ChunkOptions& options, bool packed);

class TrainingChunks : public SingleBatchSource {
 public:
  // User error if the stream has fewer than length + 1 tokens.
  TrainingChunks(const TokenStream& stream, const ChunkOptions& options, uint64_t seed, bool packed = false);

  int64_t batches_per_epoch() const override { return batches_; }

 private:
  void make(int64_t epoch, int64_t index) override;

  const TokenStream& stream_;
  const ChunkOptions options_;
  int64_t max_offset_, chunks_, batches_;
  int64_t made_ = 0;  // batches
};

// Chunks that hold targets [1, stream.size()) once each; batches have the arrays of token_inputs().
int64_t scoring_batches(const TokenStream& stream, const ChunkOptions& options);
void fill_scoring_batch(const TokenStream& stream, const ChunkOptions& options, int64_t index, OwnedBatch& batch);

struct TargetedTokens {
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;  // what follows each token; -1 is not learned
  bool goes_on = false;          // is of the same conversation as the one before it
};

// Rows of several token sequences that do not see each other, for training on texts of which a part is learned.
class PackedRows : public SingleBatchSource {
 public:
  // Packs sequences by best fit, longest first, into rows of options.length; none may be longer than a row. Batches
  // have the arrays of token_inputs(options, true). Sequences share a row in all epochs; the order of rows is a
  // function of (seed, epoch). Data must outlive this.
  PackedRows(const std::vector<TargetedTokens>& data, const ChunkOptions& options, uint64_t seed);

  int64_t batches_per_epoch() const override { return (row_count() + options_.rows - 1) / options_.rows; }

  int64_t row_count() const { return std::ssize(rows_); }
  // For evaluation: every row once. Valid as long as next()'s.
  const Batch& ordered_batch(int64_t index);

 private:
  void make(int64_t epoch, int64_t index) override;
  // Fills in rows order(first), order(first + 1), ...
  template <class Order> void fill(int64_t first, const Order& order);

  const std::vector<TargetedTokens>& data_;
  const ChunkOptions options_;
  std::vector<std::vector<size_t>> rows_;  // the sequences of each
};

// Rows for masked language modelling (Devlin et al. 2019): [CLS], a piece of one document, [SEP]; 15% of the piece's
// tokens are predicted, of which 80% read [MASK], 10% another token, and 10% themselves. Cuts of long documents, the
// order of rows and masks are pure functions of (seed, epoch) and a token's position in the stream.
struct TokenSpan {  // tokens [first, first + count) of a stream
  int64_t first, count;
  bool operator==(const TokenSpan&) const = default;
};

struct MaskingOptions {
  int64_t rows = 1;
  std::vector<int64_t> lengths;  // the padded lengths there are, ascending, template included
  int32_t begin = -1, end = -1;  // around each piece; -1: none
  int32_t mask = 0;
  std::vector<int32_t> special;  // never masked, beside the three above
  int64_t vocab_size = 0;        // what other tokens are drawn from
};

// Maskable positions of a row of this padded length: 15% of what is not template.
int64_t masked_places(const MaskingOptions& options, int64_t length);

// The arrays of a batch: tokens [rows, length], lengths [rows]; positions and targets [rows * masked_places]: an index
// into the flattened batch, and the original token there. Unused entries have target -1.
std::vector<BatchInput> masked_inputs(const MaskingOptions& options);

class MaskedChunks : public SingleBatchSource {
 public:
  // The stream must outlive this. User error without a document that has a token.
  MaskedChunks(const TokenStream& stream, std::vector<TokenSpan> documents, MaskingOptions options, uint64_t seed);

  // Shapes are indices into options.lengths.
  int64_t shape_count() const override { return std::ssize(options_.lengths); }

  // For evaluation: every token in one row, shortest rows first; the masks are fixed. Valid as long as next()'s.
  int64_t scoring_batches();
  const Batch& scoring_batch(int64_t index);

 private:
  void cut(int64_t offset);
  int64_t prepare(int64_t epoch) override;
  void make(int64_t epoch, int64_t index) override;
  int64_t batches() const;
  void fill(int64_t first, uint64_t key);
  void fill_row(const TokenSpan& piece, int64_t row, int64_t length, uint64_t key);
  bool can_be_masked(int32_t token) const;

  const TokenStream& stream_;
  const std::vector<TokenSpan> documents_;
  const MaskingOptions options_;
  int64_t content_;                                  // most tokens of a piece
  std::vector<TokenSpan> pieces_;                    // rows of the epoch in order, or of the scoring
  std::vector<int64_t> starts_;                      // the first row of each batch
  int64_t prepared_ = -1;                            // the epoch that pieces_ is of; -2: of the scoring
  int64_t made_ = 0;                                 // batches
  std::vector<std::pair<uint64_t, int64_t>> draws_;  // of one row
};

// The documents of a stream between `separator` tokens; one document if it is -1.
std::vector<TokenSpan> find_documents(const TokenStream& stream, int32_t separator);
}  // namespace linnet
