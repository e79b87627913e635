// The tokenizers that are trained here and the files that run folders keep of them: lists of characters or words, and
// SentencePiece models under a seal.
#pragma once
#include "data/text/tokenizer.h"

namespace linnet {

enum class TextUnit {
  kCharacter,  // one code point; the text is taken as it is, without Unicode normalization
  kWord,       // what stands between white space
};

// The most frequent units of the lines, at most vocab_size - 4 of them; equal counts in the order of their bytes. Id
// 4 + i is token i. A unit that is not in the list becomes `unknown`, which decodes to U+FFFD among characters and to
// "<unk>" among words. Words decode joined by one space.
std::unique_ptr<Tokenizer> train_vocabulary(TextUnit unit, int64_t vocab_size, const std::vector<std::string>& lines);

// The file is text: "linnet-tokenizer 1 char 96", then 96 tokens, one a line, with \\ \n \r \t \s (space) escaped.
std::string format_vocabulary(TextUnit unit, std::span<const std::string> tokens);

// `path` is for messages only; anything but what format_vocabulary() writes is a user error that names the line.
std::unique_ptr<Tokenizer> parse_vocabulary(TextUnit unit, std::string_view bytes, const std::string& path);

// The tokenizer of a serialized ModelProto with our ids for the special tokens, read without the SentencePiece library;
// `path` is for messages. Text is normalized by SentencePiece's nmt_nfkc: Unicode NFKC, control characters removed,
// runs of blanks made one and blanks at either end dropped. Ordinary text comes back as it was ("…" comes back as
// "...", "²" as "2"), while composed and decomposed accents, full and half width, common and no-break spaces get the
// same tokens. A character that the model does not know is `unknown` and decodes to " ⁇ ".
std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(std::string model, const std::string& path);

// The file is the ModelProto and, at its end, one more protobuf field that holds a checksum. SentencePiece's own tools
// skip fields they do not know, so they read the file too. A damaged file is told by its checksum.
std::string seal_sentencepiece_model(std::string_view model);
// The model without its seal; a user error when the seal is missing or wrong.
std::string open_sentencepiece_model(std::string_view bytes, const std::string& path);

// Trains a SentencePiece model (Kudo and Richardson 2018) by the SentencePiece library and returns it serialized. The
// trainer takes many times the corpus in memory, which would stay in this process's high-water mark, so it runs in a
// forked child that hands back the model through a pipe and whose output is kept off the terminal. Must be called while
// this process has a single thread: the child of a process with more inherits their locks but not the threads that
// would release them.
std::string train_sentencepiece(const TokenizerOptions& options, const std::vector<std::string>& lines);

}  // namespace linnet
