// The step of a pretrained tokenizer that cuts a word into pieces of its vocabulary, and the two-way table of the
// pieces and their ids.
#pragma once
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include "base/json_reader.h"
#include "data/text/pipeline/segmentation.h"

namespace linnet {

// Eight bytes at a time: words and pieces are short, and every word of a text is hashed. Packed models hold tables that
// were made with it: another hash is another version of theirs (pipeline/tokenizer_tables.h).
inline uint64_t hash_piece(std::string_view bytes) {
  uint64_t hash = bytes.size() * 0x9e3779b97f4a7c15u;
  const char* p = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; p += 8, left -= 8) {
    uint64_t part;
    std::memcpy(&part, p, 8);
    hash = (hash ^ part) * 0xbf58476d1ce4e5b9u;
    hash ^= hash >> 32;
  }
  uint64_t part = 0;
  for (size_t i = 0; i < left; ++i) part |= static_cast<uint64_t>(static_cast<unsigned char>(p[i])) << (8 * i);
  hash = (hash ^ part) * 0x94d049bb133111ebu;
  return hash ^ (hash >> 29);
}

// Internal error for an id outside [0, vocab_size).
void check_token(TokenId id, int64_t vocab_size);

class Vocabulary {
 public:
  static constexpr TokenId kMaxId = 10'000'000;
  static constexpr uint32_t kGap = UINT32_MAX;

  // The bytes of a piece in the text; begin is kGap where no piece has the id.
  struct Location {
    uint32_t begin = kGap, length = 0;
  };
  // Open addressing by hash_piece(): the id is -1 where nothing is, the tag is the upper half of the hash.
  struct Slot {
    TokenId id = -1;
    uint32_t tag = 0;
  };
  struct Tables {
    std::span<const char> text;
    std::span<const Location> locations;  // of each id
    std::span<const Slot> slots;          // none, or a power of two of which at least one is empty
  };

  Vocabulary() = default;
  // Of tables that outlive it, and that nothing is added to. They are checked, so that any bytes are safe to use: a
  // user error that begins with `where`.
  Vocabulary(const Tables& tables, const std::string& where);
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  // An id that is taken by another piece, or outside 0..kMaxId, is refused with false. A piece that is there already
  // keeps its first id.
  bool add(std::string_view piece, TokenId id);

  TokenId size() const { return static_cast<TokenId>(tables_.locations.size()); }  // largest id + 1
  TokenId find(std::string_view piece) const {                                     // -1 when there is none
    if (tables_.slots.empty()) return -1;
    const uint64_t hash = hash_piece(piece);
    const size_t mask = tables_.slots.size() - 1;
    for (size_t slot = hash & mask;; slot = (slot + 1) & mask) {
      const Slot& s = tables_.slots[slot];
      if (s.id < 0) return -1;
      if (s.tag == static_cast<uint32_t>(hash >> 32) && this->piece(s.id) == piece) return s.id;
    }
  }
  bool has(TokenId id) const { return id >= 0 && id < size() && tables_.locations[id].begin != kGap; }
  std::string_view piece(TokenId id) const {  // of an id in 0..size(); "" for a gap
    const Location& location = tables_.locations[id];
    return location.begin == kGap ? std::string_view()
                                  : std::string_view(tables_.text.data() + location.begin, location.length);
  }
  size_t longest() const { return longest_; }  // bytes
  const Tables& tables() const { return tables_; }

 private:
  void insert(TokenId id);
  void grow();

  Tables tables_;  // the three vectors, or what the constructor was given
  std::vector<char> text_;
  std::vector<Location> locations_;
  std::vector<Slot> slots_;  // at most half full
  size_t used_ = 0, longest_ = 0;
};

class TokenizerTables;  // pipeline/tokenizer_tables.h
class TokenizerTableWriter;

// What one thread needs besides the model; reused from word to word.
struct ModelScratch {
  PairMerger<uint32_t> merger;
  std::vector<WayNode<double>> nodes;
  std::vector<ModelToken> way;
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

}  // namespace linnet
