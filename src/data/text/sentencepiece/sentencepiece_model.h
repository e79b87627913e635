// The step of a SentencePiece model that cuts a normalized text into pieces, the way SentencePiece's own code does: its
// sums are in fp32 and of ways that are equally good it takes the one it finds first.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>
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
  float sum;     // unigram: of the tokens' scores
  struct Node {  // the best way to a place
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
  virtual ~SentencePieceModel() = default;

  // Replaces scratch.tokens by the pieces of scratch.text; what is in no piece is the unknown one, character by
  // character. Safe from several threads, each with its own scratch.
  void tokenize(SentencePieceScratch& scratch) const;
  const Vocabulary& vocabulary() const { return vocabulary_; }
  TokenId unknown() const { return unknown_; }

 protected:
  SentencePieceModel(const SentencePieceModelFile& file, const std::string& path);
  // Appends the pieces of a word to scratch.word.
  virtual void cut(std::string_view word, SentencePieceScratch& scratch) const = 0;

  const SentencePieceModelFile& file_;
  Vocabulary vocabulary_;
  TokenId unknown_ = 0;
  // No piece has "▁" behind another character: words are the runs of text that begin with it, and no piece reaches
  // across. Else there is one word, which is the text.
  bool has_words_ = true;
};

// `file` outlives the model; `user_defined` too, it is null when there are none.
std::unique_ptr<SentencePieceModel> make_sentencepiece_model(const SentencePieceModelFile& file,
                                                             const ByteTrie* user_defined, const std::string& path);

}  // namespace linnet
