// Learns the merges of a byte-level BPE from text.
#pragma once
#include <unordered_map>
#include "data/text/pipeline/split_pattern.h"
#include "data/text/pretrained_tokenizer.h"

namespace linnet {

struct BpeTrainingOptions {
  int64_t vocab_size = 8000;  // with the 256 bytes and the special tokens; less when the text has nothing left to merge
  int64_t min_count = 2;      // pairs that are rarer are not merged
  std::vector<std::string> special = {"<|endoftext|>"};  // the first begins and ends texts; they get the last ids
};

// The most frequent pair is merged first, of equals the one with the lower ids, as in tokenizers. Counts of pairs are
// kept up as words change, so a merge costs what it touches. Depends on the texts and options only.
class BpeTrainer {
 public:
  explicit BpeTrainer(BpeTrainingOptions options);
  void add(std::string_view text);  // cut into words by GPT-2's expression
  std::unique_ptr<PretrainedTokenizer> train() const;

 private:
  BpeTrainingOptions options_;
  SplitPattern pattern_;
  MatchScratch scratch_;
  std::vector<TextRange> matches_;
  std::unordered_map<std::string, int64_t> words_;
};

}  // namespace linnet
