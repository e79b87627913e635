// A vocabulary of whole words: tokenizers' WordLevel.
#pragma once
#include "data/text/pipeline/subword_model.h"

namespace linnet {

class WordLevelModel : public SubwordModel {
 public:
  // `where` begins the message for a word that is not in a vocabulary without `unknown_piece`, a user error.
  WordLevelModel(Vocabulary vocabulary, std::string unknown_piece, std::string where);

  const char* kind() const override { return "wordlevel"; }
  void tokenize(std::string_view word, ModelScratch& scratch, std::vector<ModelToken>& tokens) const override;
  TokenId unknown() const override { return unknown_; }
  std::string to_json() const override;
  std::string settings_json() const override;
  void add_tables(TokenizerTableWriter&) const override {}

 private:
  std::string unknown_piece_, where_;
  TokenId unknown_;
};

}  // namespace linnet
