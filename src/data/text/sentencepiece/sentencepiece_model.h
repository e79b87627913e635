// The step of a SentencePiece model that cuts a normalized text into pieces, the way SentencePiece's own code does: its
// sums are in fp32 and of ways that are equally good it takes the one it finds first.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>
#include "data/text/bpe/word_cache.h"
#include "data/text/byte_trie.h"
#include "data/text/pipeline/subword_model.h"
#include "data/text/sentencepiece/sentencepiece_proto.h"

namespace linnet {

// What one thread needs besides the model; reused from text to text.
struct SentencePieceScratch {
  std::string text;  // normalized
  std::vector<size_t> sources;
  std::vector<ModelToken> tokens, word;
  WordCache cache;
  struct Node {  // unigram: the best way to a place
    float score;
    uint32_t begin;
    TokenId id;
  };
  std::vector<Node> nodes;
  struct TwoBest {
    double best, second;
    uint32_t begin;
    TokenId id;
  };
  std::vector<TwoBest> two_best;
  struct Symbol {  // BPE
    uint32_t begin, size;
    int32_t previous, next;
    bool frozen;
  };
  std::vector<Symbol> symbols;
  struct Pair {
    float score;
    uint32_t left, right, size;
    // The largest score first, then the leftmost.
    bool operator<(const Pair& other) const { return score != other.score ? score < other.score : left > other.left; }
  };
  std::vector<Pair> pairs;
  std::unordered_map<std::string_view, uint32_t> splits;  // bytes of the left half of a piece that is not to be used
};

class SentencePieceModel {
 public:
  // `file` outlives the model; `user_defined` too, it is null when there are none.
  SentencePieceModel(const SentencePieceModelFile& file, const std::string& path);
  virtual ~SentencePieceModel() = default;

  // Replaces scratch.tokens by the pieces of scratch.text; what is in no piece is the unknown one, character by
  // character. Safe from several threads, each with its own scratch.
  virtual void tokenize(SentencePieceScratch& scratch) const = 0;
  const Vocabulary& vocabulary() const { return vocabulary_; }
  TokenId unknown() const { return unknown_; }

 protected:
  // The end of the word that begins here. No piece reaches across: words are the runs of text that begin with "▁" where
  // no piece has one behind another character, else there is one word, which is the text.
  size_t word_end(std::string_view text, size_t begin) const;

  const SentencePieceModelFile& file_;
  Vocabulary vocabulary_;
  TokenId unknown_ = 0;
  bool has_words_ = true;
};

// The unigram model (Kudo 2018): the way with the largest sum of scores.
class SentencePieceUnigram : public SentencePieceModel {
 public:
  SentencePieceUnigram(const SentencePieceModelFile& file, const std::string& path);
  void tokenize(SentencePieceScratch& scratch) const override;

 private:
  void best_way(std::string_view word, float before, SentencePieceScratch& scratch) const;
  bool clear_way(std::string_view word, SentencePieceScratch& scratch) const;
  float score_of(TokenId id) const { return id == unknown_ ? unknown_score_ : scores_[static_cast<size_t>(id)]; }

  ByteTrie trie_;
  std::vector<float> scores_;
  float unknown_score_ = 0;
  bool has_clear_words_ = true;
};

// Byte-pair encoding (Sennrich and others 2016): of the pairs of neighbors that make a piece the one with the largest
// score is joined first.
class SentencePieceBpe : public SentencePieceModel {
 public:
  SentencePieceBpe(const SentencePieceModelFile& file, const ByteTrie* user_defined, const std::string& path);
  void tokenize(SentencePieceScratch& scratch) const override;

 private:
  void split(std::string_view word, SentencePieceScratch& scratch) const;
  void join_few(std::string_view word, SentencePieceScratch& scratch) const;
  void join_many(std::string_view word, SentencePieceScratch& scratch) const;
  void finish(std::string_view word, uint32_t begin, uint32_t size, SentencePieceScratch& scratch) const;
  // The piece that text can be joined to, or -1.
  TokenId joined(std::string_view text) const {
    const TokenId id = vocabulary_.find(text);
    return id >= 0 && joinable_[static_cast<size_t>(id)] ? id : -1;
  }

  const ByteTrie* user_defined_;
  std::vector<bool> joinable_, unused_;
  bool any_unused_ = false;
};

}  // namespace linnet
