// Learns the pieces of a WordPiece tokenizer from text.
#pragma once
#include <memory>
#include <string>
#include <vector>
#include "data/text/pretrained_tokenizer.h"

namespace linnet {

struct WordPieceTrainingOptions {
  int64_t vocab_size = 8000;  // with BERT's five special tokens; less when the text has nothing left to merge
  bool lowercase = true;
  int64_t min_count = 2;  // pairs of pieces that are rarer are not merged
};

// Words are cut as BERT cuts them, accents are kept. Of more characters than three quarters of the vocabulary hold, the
// rarest are left out. The same texts give the same tokenizer. User error for texts without a word, and for a
// vocabulary that is too small.
std::unique_ptr<PretrainedTokenizer> train_wordpiece(const std::vector<std::string>& texts,
                                                     const WordPieceTrainingOptions& options);

}  // namespace linnet
