// Parallel text: line i of one language and its translation. Files are UTF-8, plain or gzip (see record_reader.h for
// what is accepted and which errors there are; all are user errors of one line).
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

// Fields that hold a pair; empty: the usual names ("source", "src"; "target", "tgt"), else both that there are.
struct PairColumns {
  std::string source, target;
};

// A .csv or JSON lines (record_reader.h), whose fields may lie within "translation", as in data sets of Hugging Face;
// or one "source<TAB>target" a line. Of the latter, what a third column holds is left out. A line without a tab, or
// with more columns, is an error that names it. An empty side is kept, as an empty line of paired files is: dropping
// pairs, and counting them, is the batcher's decision.
ParallelText read_table(const std::string& path, const PairColumns& columns = {});

// The first two columns of a line that has two or three. `where`: "path:line", for messages.
std::pair<std::string, std::string> split_pair(const std::string& line, const std::string& where);

// Two files of equally many lines; unequal counts are an error that gives both.
ParallelText read_pair(const std::string& source_path, const std::string& target_path);

// All lines of one file, at least one: a file without any is an error.
std::vector<std::string> read_lines(const std::string& path);

// What stands around a sentence's own tokens in a pair.
struct SentenceFrame {
  // Before and behind a source.
  std::vector<TokenId> source_begin = {}, source_end;
  // Before and behind a target: what decoding begins with, and what else is not generated; the end.
  std::vector<TokenId> target_begin, target_end;
  // The usual one: source, end; begin, target, end.
  static SentenceFrame of(const SpecialTokens& special) {
    return {.source_end = {special.end}, .target_begin = {special.begin}, .target_end = {special.end}};
  }
  bool operator==(const SentenceFrame&) const = default;
};

// Puts a sentence's tokens between the two; the tokens' end is cut off where there are more than `longest` (0: any)
// together. Whether it was.
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

// Sentence pairs as token ids, in one flat vector: 4 bytes a token and 16 bytes a pair.
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
