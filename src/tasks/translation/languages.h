// Tokens that model folders need around sentences: languages (mBART, M2M100, NLLB), and BART's text begin.
#pragma once
#include <string>
#include "models/families/config_file.h"
#include "tasks/translation/tokenizer_pair.h"

namespace linnet {
// As the tokenizer spells them ("eng_Latn", "en_XX"; "__en__" or "en"); "": the folder's.
struct Languages {
  std::string source = {}, target = {};
  bool may_ignore = false;  // models without languages ignore them; otherwise a user error
  bool empty() const { return source.empty() && target.empty(); }
};
Languages languages_of(const Config& config);

// Adds the tokens around sentences; frame() reports missing languages. User error for one that the tokenizer lacks.
void frame_sentences(TokenizerPair& pair, const ConfigFile& config, const Languages& languages);
}  // namespace linnet
