// Tokenizers that are trained here, and their files in run folders: characters, words, sealed SentencePiece models.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>
#include "data/text/pipeline/tokenizer_json.h"
#include "data/text/pretrained_tokenizer.h"
#include "data/text/tokenizer.h"

namespace linnet {
enum class TextUnit {
  kCharacter,  // one code point; the text is taken as it is, without Unicode normalization
  kWord,       // what stands between white space
};

// The most frequent units of the lines, at most vocab_size - 4; equal counts by their bytes. Id 4 + i is token i. Other
// units become `unknown`, which decodes to U+FFFD among characters and "<unk>" among words. A space joins words.
std::unique_ptr<Tokenizer> train_vocabulary(TextUnit unit, int64_t vocab_size, const std::vector<std::string>& lines);

// The file is text: "linnet-tokenizer 1 char 96", then 96 tokens, one a line, with \\ \n \r \t \s (space) escaped.
std::string format_vocabulary(TextUnit unit, std::span<const std::string> tokens);

// `path` is for messages; anything but what format_vocabulary() writes is a user error that names the line.
std::unique_ptr<Tokenizer> parse_vocabulary(TextUnit unit, std::string_view bytes, const std::string& path);

// The tokenizer of a serialized ModelProto with our ids for special tokens, read without the SentencePiece library;
// `path` is for messages. Text is normalized by SentencePiece's nmt_nfkc: Unicode NFKC, control characters removed,
// runs of blanks made one, blanks at either end dropped. So "…" decodes to "...", "²" to "2", and composed and
// decomposed accents, full and half width, common and no-break spaces get the same tokens. Unknown is " ⁇ ".
std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(std::string model, const std::string& path);

// Appends a protobuf field with a checksum to the ModelProto. SentencePiece's tools skip unknown fields.
std::string seal_sentencepiece_model(std::string_view model);
// The model without its seal; user error if the seal is missing or wrong.
std::string open_sentencepiece_model(std::string_view bytes, const std::string& path);

// Trains a SentencePiece model (Kudo and Richardson 2018) with the SentencePiece library and returns it serialized. The
// trainer takes many times the corpus in memory, so it runs in a forked child, which returns the model through a pipe
// and is silent. Call it while this process has a single thread: a child inherits the locks of other threads, but not
// the threads that would release them.
std::string train_sentencepiece(const TokenizerOptions& options, const std::vector<std::string>& lines);

// Trains byte-level BPE and WordPiece tokenizers: joins the most frequent pair of neighbors first, of equals the one
// with the lower ids, as in tokenizers. The result depends on texts and options only.
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
