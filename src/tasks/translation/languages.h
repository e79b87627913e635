// What stands around sentences for a model of a model folder: the languages of those that know many (mBART, M2M100,
// NLLB), and what BART's texts begin with.
#pragma once
#include <string>
#include "models/families/config_file.h"
#include "tasks/translation/tokenizer_pair.h"

namespace linnet {

// As the tokenizer spells them ("eng_Latn", "en_XX"; "__en__" or "en"); "": as the folder says.
struct Languages {
  std::string source = {}, target = {};
  bool may_ignore = false;  // a model without languages takes no notice; else that is a user error
  bool empty() const { return source.empty() && target.empty(); }
};
Languages languages_of(const Config& config);

// Sets the tokens of `pair` around sentences, which has those that begin and end one. Languages that nobody says are an
// error when frame() is asked for. User error for a language that the tokenizer does not have.
void frame_sentences(TokenizerPair& pair, const ConfigFile& config, const Languages& languages);

}  // namespace linnet
