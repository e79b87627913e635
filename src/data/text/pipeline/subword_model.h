// The step of a pretrained tokenizer that cuts a word into pieces of its vocabulary.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>
#include "data/text/vocabulary.h"

namespace linnet {

class TokenizerTableWriter;  // pipeline/tokenizer_tables.h

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
  virtual const char* kind() const = 0;  // "bpe" | "wordpiece" | "unigram" | "wordlevel"
  // Appends the tokens of a word, which is not empty. Safe from several threads, each with its own scratch.
  virtual void tokenize(std::string_view word, ModelScratch& scratch, std::vector<ModelToken>& tokens) const = 0;
  virtual TokenId unknown() const = 0;      // -1 when there is none
  virtual std::string to_json() const = 0;  // tokenizer.json's "model"
  // The members of to_json() but the vocabulary and the merges, without braces; and the tables of what they leave out,
  // besides the vocabulary.
  virtual std::string settings_json() const = 0;
  virtual void add_tables(TokenizerTableWriter& tables) const = 0;
  const Vocabulary& vocabulary() const { return vocabulary_; }
  // What keeps the memory of tables that the model does not own.
  void keep(std::shared_ptr<const void> owner) { owner_ = std::move(owner); }

 protected:
  Vocabulary vocabulary_;

 private:
  std::shared_ptr<const void> owner_;
};

}  // namespace linnet
