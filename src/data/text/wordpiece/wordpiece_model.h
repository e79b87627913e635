// WordPiece as BERT cuts words: the longest piece that fits, then the longest "##" piece, and so on.
#pragma once
#include "data/text/pipeline/subword_model.h"

namespace linnet {

class WordPieceModel : public SubwordModel {
 public:
  // A word with more characters than `longest_word`, or that pieces do not cover, is the unknown token; a vocabulary
  // without that is a user error, `where` is for its message.
  WordPieceModel(Vocabulary vocabulary, std::string unknown_piece, std::string prefix, int64_t longest_word,
                 const std::string& where);

  const char* kind() const override { return "wordpiece"; }
  void tokenize(std::string_view word, ModelScratch& scratch, std::vector<ModelToken>& tokens) const override;
  TokenId unknown() const override { return unknown_; }
  std::string to_json() const override;
  std::string settings_json() const override;
  void add_tables(TokenizerTableWriter&) const override {}

 private:
  std::string unknown_piece_, prefix_;
  int64_t longest_word_;
  TokenId unknown_ = -1;
};

}  // namespace linnet
