// The text of a language model as tokens: what to train on, what to choose by.
#pragma once
#include <memory>
#include <string>

#include "config/config.h"
#include "data/examples/text/token_stream.h"
#include "tasks/text_coder.h"

namespace linnet {

// How documents that follow one another in a stream are told apart (see ChunkOptions).
struct DocumentTokens {
  int32_t begin = -1;      // the token that begins each
  bool begin_ends = true;  // it is also what ends the document before it
};

struct LanguageText {
  TokenStream tokens;        // the first is only looked at: what is scored begins with the second
  int64_t words = 0;         // runs of what is not white space; 0 for token files
  bool packed = false;       // several documents
  DocumentTokens documents;  // with `packed`
};

struct LanguageData {
  std::shared_ptr<const TextCoder> coder;
  LanguageText train, valid;
};

// Reads `text` and `valid_text`, or the end of the former. With `coder` that one is used instead of a new one.
LanguageData load_language_data(const Config& config, std::shared_ptr<const TextCoder> coder);
// One file by itself: its first token has nothing before it and is not scored.
LanguageText load_language_text(const Config& config, const TextCoder& coder, const std::string& path);
// "valid" (as training has it) or "test" of a run's configuration.
LanguageText load_language_split(const Config& config, const TextCoder& coder, const std::string& split);

}  // namespace linnet
