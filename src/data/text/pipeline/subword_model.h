// Cuts a word into pieces of a vocabulary; and the two-way table of pieces and ids.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include "base/json.h"
#include "base/numbers.h"
#include "data/text/byte_trie.h"
#include "data/text/tokenizer.h"

namespace linnet {
struct ModelToken {
  TokenId id = 0;
  uint32_t end = 0;  // bytes of the word up to the token's end; it begins where the one before it ends
};

constexpr uint64_t pair_key(TokenId left, TokenId right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// Joins neighboring tokens, lowest rank first, leftmost of equals. Not thread-safe; reuses its memory.
template <class Rank> class PairMerger {
 public:
  struct Joined {
    Rank rank;
    TokenId id;
  };
  static constexpr Joined kApart{std::numeric_limits<Rank>::max(), -1};
  // Up to this many tokens a linear search for the lowest pair is faster than a heap.
  static constexpr size_t kFew = 48;

  // tokens[first...] are the word's symbols. join(begin, left, right) is the Joined of two neighbors from that byte on.
  template <class Join> static void merge_few(std::vector<ModelToken>& tokens, size_t first, const Join& join) {
    ModelToken* s = tokens.data() + first;
    size_t count = tokens.size() - first;
    Joined pairs[kFew];  // pairs[i]: what symbols i and i + 1 become
    const auto consider = [&](size_t i) { pairs[i] = join(i > 0 ? s[i - 1].end : 0, s[i], s[i + 1]); };
    for (size_t i = 0; i + 1 < count; ++i) consider(i);
    while (count > 1) {
      size_t best = count;
      Rank rank = kApart.rank;
      for (size_t i = 0; i + 1 < count; ++i)
        if (pairs[i].rank < rank) rank = pairs[i].rank, best = i;
      if (best == count) break;
      s[best] = {pairs[best].id, s[best + 1].end};
      --count;
      for (size_t i = best + 1; i < count; ++i) s[i] = s[i + 1];
      for (size_t i = best + 1; i + 1 < count; ++i) pairs[i] = pairs[i + 1];
      if (best + 1 < count) consider(best);
      if (best > 0) consider(best - 1);
    }
    tokens.resize(first + count);
  }

  template <class Join> void merge_many(std::vector<ModelToken>& tokens, size_t first, const Join& join) {
    ModelToken* s = tokens.data() + first;
    const auto count = static_cast<int32_t>(tokens.size() - first);
    links_.clear(), heap_.clear();
    for (int32_t i = 0; i < count; ++i) links_.push_back({i - 1, i + 1 < count ? i + 1 : -1});
    const auto consider = [&](int32_t left) {
      if (left < 0 || links_[left].next < 0) return false;
      const ModelToken& right = s[links_[left].next];
      const Joined joined = join(links_[left].previous < 0 ? 0 : s[links_[left].previous].end, s[left], right);
      if (joined.id >= 0) heap_.push_back({joined, left, right.end});
      return joined.id >= 0;
    };
    for (int32_t i = 0; i < count; ++i) consider(i);
    std::make_heap(heap_.begin(), heap_.end());
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end());
      const auto [joined, left, end] = heap_.back();
      heap_.pop_back();
      const int32_t right = links_[left].next;
      if (right < 0 || s[right].end != end) continue;  // one of the two has changed since
      s[left] = {joined.id, end};
      links_[left].next = std::exchange(links_[right].next, -1);
      if (links_[left].next >= 0) links_[links_[left].next].previous = left;
      if (consider(links_[left].previous)) std::push_heap(heap_.begin(), heap_.end());
      if (consider(left)) std::push_heap(heap_.begin(), heap_.end());
    }
    size_t kept = first;
    for (int32_t i = 0; i >= 0; i = links_[i].next) tokens[kept++] = s[i];
    tokens.resize(kept);
  }

 private:
  struct Link {
    int32_t previous, next;  // symbols, -1 at the ends and of a symbol that went into another
  };
  struct Candidate {
    Joined joined;
    int32_t left;
    uint32_t end;  // of the right one
    bool operator<(const Candidate& other) const {
      return joined.rank != other.joined.rank ? joined.rank > other.joined.rank : left > other.left;
    }
  };
  std::vector<Link> links_;
  std::vector<Candidate> heap_;
};

// The best way to one position of a word.
template <class Score> struct WayNode {
  Score score;
  uint32_t begin;
  TokenId id;
};

// Appends the tokens on the way to the last node.
template <class Nodes> void append_way(const Nodes& nodes, std::vector<ModelToken>& tokens) {
  const auto first = std::ssize(tokens);
  for (auto end = static_cast<uint32_t>(nodes.size() - 1); end > 0; end = nodes[end].begin)
    tokens.push_back({nodes[end].id, end});
  std::reverse(tokens.begin() + first, tokens.end());
}

// Appends the segmentation of a word with the largest sum of scores, from `start` on, by Viterbi; score_of(-1) and
// `unknown` are for a character that is no piece. Of equal sums it takes the first, with the longer last piece.
template <class Score, class ScoreOf> void append_best_way(const ByteTrie& trie, std::string_view word, Score start,
    TokenId unknown, const ScoreOf& score_of, std::vector<WayNode<Score>>& nodes, std::vector<ModelToken>& tokens) {
  constexpr uint32_t kNowhere = UINT32_MAX;
  nodes.assign(word.size() + 1, {0, kNowhere, -1});
  nodes[0].score = start;
  trie.visit_keys(word, [&](size_t begin, size_t end, TokenId id) {
    const Score score = nodes[begin].score + score_of(id);
    WayNode<Score>& node = nodes[end];
    if (node.begin == kNowhere || score > node.score)
      node = {score, static_cast<uint32_t>(begin), id < 0 ? unknown : id};
  });
  append_way(nodes, tokens);
}

// Hashes eight bytes at a time: words are short, and every word of a text is hashed. Packed models store tables made
// with it, so another hash needs another version of theirs (pipeline/tokenizer_tables.h).
inline uint64_t hash_piece(std::string_view bytes) {
  uint64_t hash = bytes.size() * 0x9e3779b97f4a7c15u;
  const char* p = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; p += 8, left -= 8) {
    hash = (hash ^ number_at<uint64_t>(p)) * 0xbf58476d1ce4e5b9u;
    hash ^= hash >> 32;
  }
  uint64_t part = 0;
  for (size_t i = 0; i < left; ++i) part |= static_cast<uint64_t>(static_cast<unsigned char>(p[i])) << (8 * i);
  hash = (hash ^ part) * 0x94d049bb133111ebu;
  return hash ^ (hash >> 29);
}

void check_token(TokenId id, int64_t vocab_size);  // internal error for an id outside [0, vocab_size)

class Vocabulary {
 public:
  static constexpr TokenId kMaxId = 10'000'000;
  static constexpr uint32_t kGap = UINT32_MAX;

  // The bytes of a piece in the text; begin is kGap for an unused id.
  struct Location {
    uint32_t begin = kGap, length = 0;
  };
  // Open addressing by hash_piece(): id -1 is an empty slot, the tag is the upper half of the hash.
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
  // Uses read-only tables, which must outlive it. Any bytes are safe: errors are user errors that begin with `where`.
  Vocabulary(const Tables& tables, const std::string& where);
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  // Returns false for an id of another piece or outside 0..kMaxId. An existing piece keeps its first id.
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

// Per-thread scratch memory, reused for all words.
struct ModelScratch {
  PairMerger<uint32_t> merger;
  std::vector<WayNode<double>> nodes;
  std::vector<ModelToken> way;
  std::string text;
};

// Caches tokens of words, of which a text repeats a few thousand. A fixed table of 64-byte lines; each word has one
// line by its hash and evicts its content. Words longer than 28 bytes or 6 tokens are not cached. Not thread-safe.
class WordCache {
 public:
  static constexpr size_t kBytes = 28;  // of the longest word that is kept

  // Appends the tokens; false if the word is not cached.
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

// Cuts a word into pieces: by joining neighbors (byte pair encoding, Sennrich, Haddow & Birch 2016), or by the best
// segmentation (unigram, Kudo 2018).
class SubwordModel {
 public:
  virtual ~SubwordModel() = default;
  // Appends the tokens of a non-empty word. Thread-safe with one scratch per thread.
  virtual void tokenize(std::string_view word, ModelScratch& scratch, std::vector<ModelToken>& tokens) const = 0;
  // tokenizer.json's "model" without vocabulary and merges, and further tables for what it leaves out.
  virtual Json settings() const = 0;
  virtual void add_tables(TokenizerTableWriter&) const {}
  std::string to_json() const;  // tokenizer.json's "model"
  const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  // Uses the vocabulary of `tables` and keeps its memory; if null, an empty one or the JSON's.
  explicit SubwordModel(const TokenizerTables* tables);
  SubwordModel(const JsonObject& json, const TokenizerTables* tables);
  virtual std::string pieces_json() const;  // "vocab" and what else settings() lacks, without braces

  Vocabulary vocabulary_;

 private:
  std::shared_ptr<const void> owner_;  // of the tables
};

// The "model" of a tokenizer.json. `byte_level`: its words are in GPT-2's spelling of bytes. `tables`: if set, they
// have what the JSON lacks.
std::unique_ptr<SubwordModel> read_model(const JsonObject& json, bool byte_level, const TokenizerTables* tables);
}  // namespace linnet
