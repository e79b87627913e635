// Which beginnings of prompts are kept, in blocks of kBlock tokens; the least recently used is dropped. Blocks are
// numbers here; their keys and values are in CausalSlots.
//
// A block is identified by its tokens (not a hash) and the block before it, so it stands for all tokens up to its end.
// A block is never dropped before its successors. Keys and values depend on a request's set of adapters
// (CausalOptions::adapters), so sets share no blocks.
#pragma once
#include <cstdint>
#include <list>
#include <map>
#include <span>
#include <vector>

namespace linnet {
class PrefixCache {
 public:
  static constexpr int64_t kBlock = 32;  // tokens

  explicit PrefixCache(int64_t blocks) : blocks_(static_cast<size_t>(blocks)) {}

  // Blocks of the longest kept beginning that leaves a token to compute. `adapter`: the set used for them; -1: none.
  std::vector<int64_t> find(std::span<const int32_t> tokens, int64_t adapter = -1) {
    if (tokens.empty()) return {};
    return match(tokens, (static_cast<int64_t>(tokens.size()) - 1) / kBlock, adapter);
  }

  struct NewBlock {
    int64_t block;
    int64_t first;  // its first token's index
  };
  // Keeps all whole blocks of `tokens` that there is room for. Returns those to be filled.
  std::vector<NewBlock> keep(std::span<const int32_t> tokens, int64_t adapter = -1) {
    const int64_t whole = static_cast<int64_t>(tokens.size()) / kBlock;
    std::vector<int64_t> chain = match(tokens, whole, adapter);
    std::vector<NewBlock> added;
    while (static_cast<int64_t>(chain.size()) < whole) {
      const int64_t id = free_block();
      if (id < 0) break;
      const int64_t before = chain.empty() ? first_key(adapter) : chain.back();
      Block& block = blocks_[id];
      const auto after = before < 0 ? order_.begin() : std::next(blocks_[before].place);
      block.place = order_.insert(after, id);
      block.entry = by_tokens_.emplace(Key{before, block_of(tokens, static_cast<int64_t>(chain.size()))}, id).first;
      block.used_at = now_;
      added.push_back({id, static_cast<int64_t>(chain.size()) * kBlock});
      chain.push_back(id);
    }
    return added;
  }

  int64_t blocks() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t used() const { return used_; }  // filled blocks

 private:
  using Key = std::pair<int64_t, std::vector<int32_t>>;  // the previous block, or first_key(), and the tokens
  struct Block {
    std::map<Key, int64_t>::iterator entry;
    std::list<int64_t>::iterator place;
    uint64_t used_at = 0;
  };

  // The predecessor of a first block: -1 without adapters, lower for each set of them.
  static int64_t first_key(int64_t adapter) { return -2 - adapter; }
  static std::vector<int32_t> block_of(std::span<const int32_t> tokens, int64_t number) {
    const auto part = tokens.subspan(number * kBlock, kBlock);
    return {part.begin(), part.end()};
  }
  std::vector<int64_t> match(std::span<const int32_t> tokens, int64_t most, int64_t adapter) {
    std::vector<int64_t> chain;
    for (int64_t before = first_key(adapter); static_cast<int64_t>(chain.size()) < most;) {
      const auto found = by_tokens_.find({before, block_of(tokens, static_cast<int64_t>(chain.size()))});
      if (found == by_tokens_.end()) break;
      chain.push_back(before = found->second);
    }
    touch(chain);
    return chain;
  }

  // Marks the blocks of the chain as used, the first one last.
  void touch(const std::vector<int64_t>& chain) {
    ++now_;
    for (auto id = chain.rbegin(); id != chain.rend(); ++id) {
      Block& block = blocks_[*id];
      order_.splice(order_.begin(), order_, block.place);
      block.used_at = now_;
    }
  }

  // A block never used, or else the least recently used one that is not in use now. -1: none.
  int64_t free_block() {
    if (used_ < blocks()) return used_++;
    if (order_.empty() || blocks_[order_.back()].used_at == now_) return -1;
    const int64_t id = order_.back();
    order_.pop_back();
    by_tokens_.erase(blocks_[id].entry);
    return id;
  }

  std::vector<Block> blocks_;
  int64_t used_ = 0;
  std::map<Key, int64_t> by_tokens_;
  std::list<int64_t> order_;  // most recently used first; a block is before its successors
  uint64_t now_ = 0;
};
}  // namespace linnet
