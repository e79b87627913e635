// Rows for masked language modelling (Devlin et al. 2019): [CLS], a piece of one document, [SEP]; 15% of the piece's
// tokens are predicted, of which 80% read [MASK], 10% another token, and 10% themselves. Cuts of long documents, the
// order of rows and masks are pure functions of (seed, epoch) and a token's position in the stream.
#pragma once
#include <cstdint>
#include <vector>
#include "data/examples/batch.h"
#include "data/examples/text/token_chunks.h"

namespace linnet {
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
