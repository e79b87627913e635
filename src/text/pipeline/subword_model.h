// The step of a pretrained tokenizer that cuts a word into pieces of its vocabulary.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace linnet {

struct ModelToken {
  TokenId id = 0;
  uint32_t end = 0;  // bytes of the word up to the token's end; it begins where the one before it ends
};

// What one thread needs besides the model; reused from word to word.
struct ModelScratch {
  struct Symbol {
    TokenId id;
    int32_t previous, next;  // locations in `symbols`, -1 at the ends
    uint32_t end;
    bool alive;
  };
  struct Merge {
    uint32_t rank, location;
    TokenId merged;
    // The lowest rank first, then the leftmost.
    bool operator<(const Merge& other) const {
      return rank != other.rank ? rank > other.rank : location > other.location;
    }
  };
  std::vector<Symbol> symbols;
  std::vector<Merge> heap;
  struct Node {  // the best way to one location of the word
    double score;
    uint32_t begin;
    TokenId id;
  };
  std::vector<Node> nodes;
  std::string text;
};

class SubwordModel {
 public:
  virtual ~SubwordModel() = default;
  virtual const char* kind() const = 0;  // "bpe" | "wordpiece" | "unigram"
  // Appends the tokens of a word, which is not empty. Safe from several threads, each with its own scratch.
  virtual void tokenize(std::string_view word, ModelScratch& scratch, std::vector<ModelToken>& tokens) const = 0;
  virtual TokenId unknown() const = 0;      // -1 when there is none
  virtual std::string to_json() const = 0;  // tokenizer.json's "model"
  const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  Vocabulary vocabulary_;
};

}  // namespace linnet
