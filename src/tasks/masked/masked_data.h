// The documents of a masked language model's text, as tokens.
#pragma once
#include "config/config.h"
#include "data/examples/text/masked_chunks.h"
#include "data/text/pretrained_tokenizer.h"

namespace linnet {
struct MaskedText {
  TokenStream tokens;
  std::vector<TokenSpan> documents;
};

struct MaskedData {
  MaskedText train, valid;
};

// `text` and `valid_text`, or the end of the former.
MaskedData load_masked_data(const Config& config, const PretrainedTokenizer& tokenizer);
MaskedText load_masked_text(const Config& config, const PretrainedTokenizer& tokenizer, const std::string& path);
// "valid" (as in training) or "test" of a run's configuration.
MaskedText load_masked_split(const Config& config, const PretrainedTokenizer& tokenizer, const std::string& split);
}  // namespace linnet
