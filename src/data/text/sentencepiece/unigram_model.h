// The unigram model (Kudo 2018): of all ways to cut a word into pieces, the one with the largest sum of scores.
#pragma once
#include <span>
#include "data/text/byte_trie.h"
#include "data/text/pipeline/subword_model.h"

namespace linnet {

class TokenizerTables;

class UnigramModel : public SubwordModel {
 public:
  // scores[id], as the file has it, is the logarithm of the piece's probability; `unknown` may be -1. `where` is for
  // error messages.
  UnigramModel(Vocabulary vocabulary, std::vector<double> scores, TokenId unknown, bool byte_fallback,
               const std::string& where);
  // The same from tables, which it keeps.
  UnigramModel(const TokenizerTables& tables, TokenId unknown, bool byte_fallback);

  const char* kind() const override { return "unigram"; }
  void tokenize(std::string_view word, ModelScratch& scratch, std::vector<ModelToken>& tokens) const override;
  TokenId unknown() const override { return unknown_; }
  std::string to_json() const override;
  std::string settings_json() const override;
  void add_tables(TokenizerTableWriter& tables) const override;

 private:
  void emit(std::string_view word, uint32_t begin, uint32_t end, TokenId id, std::vector<ModelToken>& tokens) const;

  // What does not depend on the form: scores_, vocabulary_ and trie_ are there.
  void finish(const std::string& where);

  std::vector<double> own_written_scores_, own_scores_;
  std::span<const double> written_scores_, scores_;  // as the file has them, and as they are used
  TokenId unknown_;
  bool byte_fallback_;
  double unknown_score_ = 0;
  TokenId byte_ids_[256];
  ByteTrie trie_;
};

}  // namespace linnet
