// Parallel text: line i of one language and its translation. Files are UTF-8, plain or gzip; errors: record_reader.h.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
#include "data/text/tokenizer.h"

namespace linnet {
struct ParallelText {
  std::vector<std::string> source, target;  // equally long
};

// Fields of a pair; empty: the usual names ("source", "src"; "target", "tgt"), or the only two.
struct PairColumns {
  std::string source, target;
};

// Reads a .csv or JSON lines (record_reader.h), whose fields may lie within "translation", as in Hugging Face data
// sets; or lines "source<TAB>target", with an optional third column that is ignored. A line without a tab, or with more
// columns, is an error that names it. Empty sides are kept, as in paired files; the batcher drops and counts them.
ParallelText read_table(const std::string& path, const PairColumns& columns = {});

// Splits a line of two or three columns. `where`: "path:line", for messages.
std::pair<std::string, std::string> split_pair(const std::string& line, const std::string& where);

// Reads two files with equally many lines; unequal counts are an error that gives both.
ParallelText read_pair(const std::string& source_path, const std::string& target_path);

std::vector<std::string> read_lines(const std::string& path);  // at least one, or an error

// The tokens around a sentence's own in a pair.
struct SentenceFrame {
  std::vector<TokenId> source_begin = {}, source_end;  // before and behind a source
  // Before a target (what decoding begins with, and other fixed tokens) and behind it.
  std::vector<TokenId> target_begin, target_end;
  // The default: source, end; begin, target, end.
  static SentenceFrame of(const SpecialTokens& special) {
    return {.source_end = {special.end}, .target_begin = {special.begin}, .target_end = {special.end}};
  }
  bool operator==(const SentenceFrame&) const = default;
};

// Frames a sentence; its end is cut off if the total exceeds `longest` (0: no limit). Returns whether it was cut.
inline bool frame_sentence(std::vector<TokenId>& ids, const std::vector<TokenId>& begin,
    const std::vector<TokenId>& end, int64_t longest = 0) {
  const size_t frame = begin.size() + end.size(), most = static_cast<size_t>(longest);
  const bool cut = longest > 0 && ids.size() + frame > most;
  if (cut) ids.resize(most > frame ? most - frame : 0);
  ids.insert(ids.begin(), begin.begin(), begin.end());
  ids.insert(ids.end(), end.begin(), end.end());
  return cut;
}

struct PairLimits {
  int64_t max_seq_len = 256;  // of either side, in tokens, the end (or begin) token included
  // true (training): pairs with an empty or too long side are dropped. false (evaluation): all stay, so pair i is line
  // i; too long sides are cut and end with the end token.
  bool drop_long = true;
  std::optional<SentenceFrame> frame = {};  // by default made of the source tokenizer's special tokens
};

struct DatasetReport {
  int64_t pairs = 0;  // kept; tokens are counted in these, each side's end token included
  int64_t dropped_empty = 0, dropped_long = 0, truncated = 0;
  int64_t unknown_source_tokens = 0, unknown_target_tokens = 0;
  int64_t source_tokens = 0, target_tokens = 0;
  // "29,000 pairs, 437,213 source and 452,101 target tokens (0.02% and 0.05% unknown), ..."
  std::string text() const;
};

// Sentence pairs as token ids in one flat vector: 4 bytes a token and 16 bytes a pair.
class PairDataset {
 public:
  // User error if no pair is left.
  PairDataset(const ParallelText& text, const Tokenizer& source, const Tokenizer& target, const PairLimits& limits);

  int64_t size() const { return report_.pairs; }
  std::span<const TokenId> source(int64_t pair) const;      // with its frame
  std::span<const TokenId> target_in(int64_t pair) const;   // with its frame but for the last token
  std::span<const TokenId> target_out(int64_t pair) const;  // but for the first: as long as target_in
  int64_t source_length(int64_t pair) const { return starts_[2 * pair + 1] - starts_[2 * pair]; }
  int64_t target_length(int64_t pair) const { return starts_[2 * pair + 2] - starts_[2 * pair + 1] - 1; }
  std::vector<std::pair<int, int>> lengths() const;  // source, target: what Buckets::choose() asks for
  const DatasetReport& report() const { return report_; }
  size_t bytes() const { return tokens_.capacity() * sizeof(TokenId) + starts_.capacity() * sizeof(int64_t); }

 private:
  // Pair i: its framed source begins at tokens_[starts_[2i]], its framed target at tokens_[starts_[2i+1]].
  std::vector<TokenId> tokens_;
  std::vector<int64_t> starts_;
  DatasetReport report_;
};
}  // namespace linnet
