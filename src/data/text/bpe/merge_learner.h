// Learns which neighboring pieces of words to join (Sennrich et al. 2016): the most frequent pair first, of equals the
// one with the lower ids, as in tokenizers. Counts of pairs are kept up as words change, so a merge costs what it
// touches. The result does not depend on the order of the words.
#pragma once
#include <cstdint>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>
#include "data/text/tokenizer.h"

namespace linnet {

class MergeLearner {
 public:
  // `alphabet`: what words consist of before the first merge; ids are indices. `prefix`: what a piece begins with that
  // does not begin a word ("##"); joining takes it off the right piece. Pairs that are rarer than `min_count` stay
  // apart.
  MergeLearner(std::vector<std::string> alphabet, std::string prefix, int64_t min_count);
  void add(std::vector<TokenId> word, int64_t count);
  void run(int64_t most);  // merges until there are `most` pieces, or nothing is left to merge
  const std::vector<std::string>& pieces() const { return pieces_; }
  const std::vector<std::pair<TokenId, TokenId>>& merges() const { return merges_; }

 private:
  struct Candidate {
    int64_t count;
    uint64_t pair;
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };
  struct Word {
    std::vector<TokenId> symbols;
    int64_t count;
  };

  void change(uint64_t pair, int64_t by, size_t word);
  void merge(uint64_t pair);
  void merge_in(uint32_t word, TokenId left, TokenId right, TokenId merged);

  const std::string prefix_;
  const int64_t min_count_;
  std::vector<std::string> pieces_;
  std::unordered_map<std::string, TokenId> piece_ids_;
  std::vector<std::pair<TokenId, TokenId>> merges_;
  std::vector<Word> words_;
  std::unordered_map<uint64_t, int64_t> counts_;
  std::unordered_map<uint64_t, std::vector<uint32_t>> where_;  // words that have, or had, the pair
  std::priority_queue<Candidate> queue_;
  std::vector<uint64_t> touched_;
};

}  // namespace linnet
