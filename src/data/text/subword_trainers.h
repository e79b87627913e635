// Trains byte-level BPE and WordPiece tokenizers: joins the most frequent pair of neighbors first, of equals the one
// with the lower ids, as in tokenizers. The result depends on texts and options only.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>
#include "data/text/pipeline/split_pattern.h"
#include "data/text/pretrained_tokenizer.h"

namespace linnet {
struct BpeTrainingOptions {
  int64_t vocab_size = 8000;  // with the 256 bytes and the special tokens; less when the text has nothing left to merge
  int64_t min_count = 2;      // pairs that are rarer are not merged
  std::vector<std::string> special = {"<|endoftext|>"};  // the first begins and ends texts; they get the last ids
};

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

struct WordPieceTrainingOptions {
  int64_t vocab_size = 8000;  // with BERT's five special tokens; less when the text has nothing left to merge
  bool lowercase = true;
  int64_t min_count = 2;  // pairs of pieces that are rarer are not merged
};

// Words are cut as BERT cuts them, accents are kept. Characters beyond three quarters of the vocabulary are dropped,
// the rarest first. User error for texts without a word, and for a vocabulary that is too small.
std::unique_ptr<PretrainedTokenizer> train_wordpiece(
    const std::vector<std::string>& texts, const WordPieceTrainingOptions& options);
}  // namespace linnet
