// Sentence pairs as token ids, in one flat vector: 4 bytes a token and 16 bytes a pair.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
#include "data/examples/text/parallel_text.h"
#include "data/text/sentence_frame.h"

namespace linnet {

struct PairLimits {
  int64_t max_seq_len = 256;  // of either side, in tokens, the end (or begin) token included
  // true (training): pairs with an empty or too long side are left out.
  // false (evaluation): every pair stays, too long sides are cut and end with the end token. Pair i is then line i.
  bool drop_long = true;
  // Empty: of the source tokenizer's special tokens.
  std::optional<SentenceFrame> frame = {};
};

struct DatasetReport {
  int64_t pairs = 0;  // kept; tokens are counted in these, each side's end token included
  int64_t dropped_empty = 0, dropped_long = 0, truncated = 0;
  int64_t unknown_source_tokens = 0, unknown_target_tokens = 0;
  int64_t source_tokens = 0, target_tokens = 0;
  // One line for people: "29,000 pairs, 437,213 source and 452,101 target tokens (0.02% and 0.05% unknown), ...".
  std::string text() const;
};

class PairDataset {
 public:
  // A user error when no pair is left.
  PairDataset(const ParallelText& text, const Tokenizer& source, const Tokenizer& target, const PairLimits& limits);

  int64_t size() const { return report_.pairs; }
  std::span<const TokenId> source(int64_t pair) const;      // with its frame
  std::span<const TokenId> target_in(int64_t pair) const;   // with its frame but for the last token
  std::span<const TokenId> target_out(int64_t pair) const;  // but for the first: as long as target_in
  int64_t source_length(int64_t pair) const { return starts_[2 * pair + 1] - starts_[2 * pair]; }
  int64_t target_length(int64_t pair) const { return starts_[2 * pair + 2] - starts_[2 * pair + 1] - 1; }
  std::vector<std::pair<int, int>> lengths() const;  // source, target: what Buckets::choose() asks for
  const DatasetReport& report() const { return report_; }
  size_t bytes() const;

 private:
  // Pair i is tokens_[starts_[2i]..] = the framed source; tokens_[starts_[2i+1]..] = the framed target.
  std::vector<TokenId> tokens_;
  std::vector<int64_t> starts_;
  DatasetReport report_;
};

}  // namespace linnet
