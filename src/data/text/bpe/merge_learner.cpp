#include "data/text/bpe/merge_learner.h"
#include <algorithm>

namespace linnet {
namespace {

uint64_t key_of(TokenId left, TokenId right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

MergeLearner::MergeLearner(std::vector<std::string> alphabet, std::string prefix, int64_t min_count)
    : prefix_(std::move(prefix)), min_count_(std::max<int64_t>(min_count, 1)), pieces_(std::move(alphabet)) {
  for (size_t id = 0; id < pieces_.size(); ++id) piece_ids_.emplace(pieces_[id], static_cast<TokenId>(id));
}

void MergeLearner::add(std::vector<TokenId> word, int64_t count) {
  for (size_t i = 0; i + 1 < word.size(); ++i) change(key_of(word[i], word[i + 1]), count, words_.size());
  words_.push_back({std::move(word), count});
}

void MergeLearner::run(int64_t most) {
  for (const auto& [pair, count] : counts_) queue_.push({count, pair});
  while (static_cast<int64_t>(pieces_.size()) < most && !queue_.empty()) {
    const Candidate top = queue_.top();
    queue_.pop();
    const int64_t count = counts_[top.pair];
    if (count != top.count) {  // words have changed since
      if (count > 0) queue_.push({count, top.pair});
      continue;
    }
    if (count < min_count_) break;
    merge(top.pair);
  }
}

void MergeLearner::change(uint64_t pair, int64_t by, size_t word) {
  counts_[pair] += by;
  if (by <= 0) return;
  std::vector<uint32_t>& where = where_[pair];
  if (where.empty() || where.back() != word) where.push_back(static_cast<uint32_t>(word));
}

void MergeLearner::merge(uint64_t pair) {
  const auto left = static_cast<TokenId>(pair >> 32), right = static_cast<TokenId>(pair & 0xFFFFFFFFu);
  const std::string joined =
      pieces_[static_cast<size_t>(left)] + pieces_[static_cast<size_t>(right)].substr(prefix_.size());
  const auto [found, fresh] = piece_ids_.emplace(joined, static_cast<TokenId>(pieces_.size()));
  if (fresh) pieces_.push_back(joined);
  merges_.emplace_back(left, right);
  std::vector<uint32_t> where = std::move(where_[pair]);
  where_.erase(pair);
  std::sort(where.begin(), where.end());
  where.erase(std::unique(where.begin(), where.end()), where.end());
  touched_.clear();
  for (const uint32_t word : where) merge_in(word, left, right, found->second);
  counts_[pair] = 0;
  std::sort(touched_.begin(), touched_.end());
  touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
  for (const uint64_t other : touched_)
    if (const int64_t count = counts_[other]; count > 0) queue_.push({count, other});
}

void MergeLearner::merge_in(uint32_t w, TokenId left, TokenId right, TokenId merged) {
  Word& word = words_[w];
  std::vector<TokenId>& s = word.symbols;
  size_t to = 0;
  for (size_t from = 0; from < s.size(); ++from) {
    if (from + 1 >= s.size() || s[from] != left || s[from + 1] != right) {
      s[to++] = s[from];
      continue;
    }
    if (to > 0) {
      change(key_of(s[to - 1], left), -word.count, w);
      change(key_of(s[to - 1], merged), word.count, w);
      touched_.push_back(key_of(s[to - 1], merged));
    }
    if (from + 2 < s.size()) {
      change(key_of(right, s[from + 2]), -word.count, w);
      change(key_of(merged, s[from + 2]), word.count, w);
      touched_.push_back(key_of(merged, s[from + 2]));
    }
    s[to++] = merged;
    ++from;
  }
  s.resize(to);
}

}  // namespace linnet
