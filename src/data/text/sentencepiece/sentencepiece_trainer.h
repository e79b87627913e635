// Training of SentencePiece models (Kudo and Richardson 2018) by the SentencePiece library. They are read without it
// (trained_tokenizers.h).
#pragma once
#include "data/text/tokenizer.h"

namespace linnet {

// Trains a model and returns it serialized. The trainer takes many times the corpus in memory, which would stay in this
// process's high-water mark, so it runs in a forked child that hands back the model through a pipe and whose output is
// kept off the terminal. Must be called while this process has a single thread: the child of a process with more
// inherits their locks but not the threads that would release them.
std::string train_sentencepiece(const TokenizerOptions& options, const std::vector<std::string>& lines);

}  // namespace linnet
