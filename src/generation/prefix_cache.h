// Which beginnings of prompts are kept, in blocks of kBlock tokens, and which block goes when there is no room: the one
// that was used longest ago. Blocks are numbers here; what they hold (keys and values, CausalSlots) lies elsewhere.
//
// A block is known by its tokens and by the block before it, so it stands for all tokens up to its end. Tokens are
// compared themselves, not by a hash. A block is never dropped before one that follows it. Keys and values depend on
// the adapters of the request (CausalOptions::adapters), so those of one set are no other set's.
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

  // The blocks of the longest beginning of `tokens` that is kept, and that leaves a token to be computed. `adapter`:
  // the set of adapters with which they were computed; -1: none.
  std::vector<int64_t> find(std::span<const int32_t> tokens, int64_t adapter = -1);

  struct NewBlock {
    int64_t block;
    int64_t first;  // the first of its tokens
  };
  // Keeps all whole blocks of `tokens`, as far as there is room. Returns those that have to be filled.
  std::vector<NewBlock> keep(std::span<const int32_t> tokens, int64_t adapter = -1);

  int64_t blocks() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t used() const { return used_; }  // blocks that hold something

 private:
  using Key = std::pair<int64_t, std::vector<int32_t>>;  // the block before, or first_key(), and the tokens
  struct Block {
    std::map<Key, int64_t>::iterator entry;
    std::list<int64_t>::iterator place;
    uint64_t used_at = 0;
  };

  // Stands for the block before the first: -1 without adapters, below for each set of them.
  static int64_t first_key(int64_t adapter) { return -2 - adapter; }
  std::vector<int64_t> match(std::span<const int32_t> tokens, int64_t most, int64_t adapter);
  void touch(const std::vector<int64_t>& chain);
  int64_t free_block();

  std::vector<Block> blocks_;
  int64_t used_ = 0;
  std::map<Key, int64_t> by_tokens_;
  std::list<int64_t> order_;  // the last used first; a block stands before those that follow it
  uint64_t now_ = 0;
};

}  // namespace linnet
