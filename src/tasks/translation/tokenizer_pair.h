// A run's tokenizers: one for both sides, or one each.
#pragma once
#include "config/config.h"
#include "data/examples/text/parallel_text.h"
#include "models/families/config_file.h"

namespace linnet {
// As the tokenizer spells them ("eng_Latn", "en_XX"; "__en__" or "en"); "": the folder's.
struct Languages {
  std::string source = {}, target = {};
  bool may_ignore = false;  // models without languages ignore them; otherwise a user error
  bool empty() const { return source.empty() && target.empty(); }
};
Languages languages_of(const Config& config);

struct TokenizerPair {
  std::shared_ptr<const Tokenizer> source, target;  // the same object for a joint vocabulary
  SpecialTokens special = {};                       // what begins and ends a sentence, for the model
  // For languages or BART (frame_sentences()): tokens around a source, and in a target after decoding's first token.
  std::vector<TokenId> before_source = {}, after_source = {}, before_target = {};
  std::string missing_language = {};  // the error about a missing language, with how to set it; empty: none

  SentenceFrame frame() const;  // user error if a language is missing
  // Padding, and the token that decoding begins with unless it is the end.
  std::vector<TokenId> never_written() const;
  void save(const std::string& folder) const;  // tokenizer.*, or source.* and target.*
};

// Special tokens of the configured model: T5's and Marian's decoders begin with padding.
SpecialTokens begin_of(const Config& config, SpecialTokens special);

// Call before worker threads start: SentencePiece trains in a child process.
TokenizerPair train_tokenizers(const Config& config, const ParallelText& train);
TokenizerPair load_tokenizers(const Config& config, const std::string& folder);  // what save() wrote
// Opens a Hugging Face model folder's tokenizers: Marian has one for each side.
TokenizerPair open_tokenizers(const std::string& folder);

// Adds the tokens that the model of a folder needs around sentences: languages (mBART, M2M100, NLLB), and BART's text
// begin. frame() reports missing languages. User error for one that the tokenizer lacks.
void frame_sentences(TokenizerPair& pair, const ConfigFile& config, const Languages& languages);
}  // namespace linnet
