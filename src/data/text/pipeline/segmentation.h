// Cuts a word into pieces: by joining neighbors (byte pair encoding, Sennrich, Haddow & Birch 2016), or by the best
// segmentation (unigram, Kudo 2018).
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>
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
}  // namespace linnet
