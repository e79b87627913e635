// The tokenizers of a run: one for both sides, or one each.
#pragma once
#include <memory>
#include "config/config.h"
#include "data/examples/text/parallel_text.h"

namespace linnet {

struct TokenizerPair {
  std::shared_ptr<const Tokenizer> source, target;  // the same object when the vocabulary is joint
  SpecialTokens special = {};                       // what begins and ends a sentence, for the model
  // Around a sentence, beside these: of a source before it and behind its end, of a target behind what decoding begins
  // with. Languages, or what a text begins with (tasks/translation/languages.h).
  std::vector<TokenId> before_source = {}, after_source = {}, before_target = {};
  std::string missing_language = {};  // why there is no frame: which language nobody has said, and how to say it

  // User error where a language is missing.
  SentenceFrame frame() const;
  // Padding, and what decoding begins with unless it is the end.
  std::vector<TokenId> never_written() const;
  void save(const std::string& folder) const;  // tokenizer.*, or source.* and target.*
};

// The special tokens of a model of the configuration: T5's and Marian's decoders begin with the padding token.
SpecialTokens begin_of(const Config& config, SpecialTokens special);

// Before worker threads start: SentencePiece trains in a child process.
TokenizerPair train_tokenizers(const Config& config, const ParallelText& train);
// What save() left in a run folder.
TokenizerPair load_tokenizers(const Config& config, const std::string& folder);
// Those of a model folder in the layout of Hugging Face: Marian has one for each side.
TokenizerPair open_tokenizers(const std::string& folder);

}  // namespace linnet
