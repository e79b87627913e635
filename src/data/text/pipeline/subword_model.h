// The step of a pretrained tokenizer that cuts a word into pieces of its vocabulary.
#pragma once
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>
#include "base/json_reader.h"
#include "data/text/vocabulary.h"

namespace linnet {

class TokenizerTables;  // pipeline/tokenizer_tables.h
class TokenizerTableWriter;

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

// The tokens of words seen before: most words of a text are a few thousand different ones. A fixed table of 64-byte
// lines; a word goes to the one place that its hash names and drives out what is there. Words longer than 28 bytes, or
// of more than 6 tokens, are not kept. One thread's.
class WordCache {
 public:
  static constexpr size_t kBytes = 28;  // of the longest word that is kept

  // Appends the tokens; false when the word is not there.
  bool find(std::string_view word, uint64_t hash, std::vector<ModelToken>& tokens) const {
    const Line& line = lines_[hash % kLines];
    if (line.tag != static_cast<uint32_t>(hash >> 32) || line.length != word.size() || word.size() > kBytes ||
        std::memcmp(line.bytes.data(), word.data(), word.size()) != 0)
      return false;
    for (size_t i = 0; i < line.count; ++i) tokens.push_back({line.ids[i], line.ends[i]});
    return true;
  }
  void keep(std::string_view word, uint64_t hash, const std::vector<ModelToken>& tokens) {
    if (word.size() > kBytes || tokens.size() > kTokens) return;
    Line& line = lines_[hash % kLines];
    line.tag = static_cast<uint32_t>(hash >> 32);
    line.length = static_cast<uint8_t>(word.size());
    line.count = static_cast<uint8_t>(tokens.size());
    std::memcpy(line.bytes.data(), word.data(), word.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      line.ids[i] = tokens[i].id;
      line.ends[i] = static_cast<uint8_t>(tokens[i].end);
    }
  }

 private:
  static constexpr size_t kLines = 1 << 14, kTokens = 6;
  struct Line {
    uint32_t tag = 0;
    uint8_t length = 0, count = 0;  // length 0: nothing here
    std::array<char, kBytes> bytes;
    std::array<uint8_t, kTokens> ends;
    std::array<TokenId, kTokens> ids;
  };
  static_assert(sizeof(Line) == 64);
  std::vector<Line> lines_{kLines};
};

class SubwordModel {
 public:
  virtual ~SubwordModel() = default;
  virtual const char* kind() const = 0;  // "bpe" | "wordpiece" | "unigram" | "wordlevel"
  // Appends the tokens of a word, which is not empty. Safe from several threads, each with its own scratch.
  virtual void tokenize(std::string_view word, ModelScratch& scratch, std::vector<ModelToken>& tokens) const = 0;
  // tokenizer.json's "model" without the vocabulary and the merges, and the tables of what it leaves out, besides the
  // vocabulary.
  virtual Json settings() const = 0;
  virtual void add_tables(TokenizerTableWriter&) const {}
  std::string to_json() const;  // tokenizer.json's "model"
  const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  // With the vocabulary of `tables`, whose memory it keeps; where that is null with none, or that of the JSON.
  explicit SubwordModel(const TokenizerTables* tables);
  SubwordModel(const JsonObject& json, const TokenizerTables* tables);
  virtual std::string pieces_json() const;  // "vocab" and what else settings() lacks, without braces

  Vocabulary vocabulary_;

 private:
  std::shared_ptr<const void> owner_;  // of the tables
};

// The "model" of a tokenizer.json. `byte_level`: the words that it sees are spelt in GPT-2's alphabet of bytes.
// `tables`: if set, they have what the JSON lacks.
std::unique_ptr<SubwordModel> read_model(const JsonObject& json, bool byte_level, const TokenizerTables* tables);
// The same of each type.
std::unique_ptr<SubwordModel> read_bpe(const JsonObject& json, bool byte_level, const TokenizerTables* tables);
std::unique_ptr<SubwordModel> read_unigram(const JsonObject& json, const TokenizerTables* tables);
std::unique_ptr<SubwordModel> read_wordpiece(const JsonObject& json, const TokenizerTables* tables);
std::unique_ptr<SubwordModel> read_word_level(const JsonObject& json, const TokenizerTables* tables);

}  // namespace linnet
