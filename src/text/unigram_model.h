// The unigram model (Kudo 2018): of all ways to cut a word into pieces, the one with the largest sum of scores.
#pragma once
#include "text/subword_model.h"

namespace linnet {

class UnigramModel : public SubwordModel {
 public:
  // scores[id], as the file has it, is the logarithm of the piece's probability; `unknown` may be -1. `where` is for
  // error messages.
  UnigramModel(Vocabulary vocabulary, std::vector<double> scores, TokenId unknown, bool byte_fallback,
               const std::string& where);

  // SentencePiece's sums are in fp32 and its control pieces are not looked for: `hidden[id]` pieces are left out.
  void follow_sentencepiece(const std::vector<bool>& hidden);

  const char* kind() const override { return "unigram"; }
  void tokenize(std::string_view word, ModelScratch& scratch, std::vector<ModelToken>& tokens) const override;
  TokenId unknown() const override { return unknown_; }
  std::string to_json() const override;

 private:
  struct Edge {
    uint32_t key = UINT32_MAX, node = 0;  // key: node << 8 | byte
  };
  // The node that `byte` leads to, or 0, which is the root.
  uint32_t child(uint32_t node, unsigned char byte) const {
    const uint32_t key = node << 8 | byte;
    for (size_t slot = (key * 0x9e3779b1u) >> shift_;; slot = (slot + 1) & (edges_.size() - 1)) {
      if (edges_[slot].key == key) return edges_[slot].node;
      if (edges_[slot].key == UINT32_MAX) return 0;
    }
  }
  void add_edge(uint32_t node, unsigned char byte, uint32_t to);
  void insert(TokenId id, const std::string& where);
  void emit(std::string_view word, uint32_t begin, uint32_t end, TokenId id, std::vector<ModelToken>& tokens) const;

  std::vector<double> written_scores_, scores_;  // as the file has them, and as they are used
  TokenId unknown_;
  bool byte_fallback_, single_precision_ = false;
  double unknown_score_ = 0;
  TokenId byte_ids_[256];
  std::vector<Edge> edges_;        // the trie of pieces: open addressing, at most half full
  int shift_ = 0;                  // 32 - log2(edges_.size())
  std::vector<TokenId> piece_at_;  // of each node, -1 for none
};

}  // namespace linnet
