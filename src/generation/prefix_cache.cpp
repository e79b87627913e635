#include "generation/prefix_cache.h"

namespace linnet {
namespace {
std::vector<int32_t> block_of(std::span<const int32_t> tokens, int64_t number) {
  const auto part = tokens.subspan(number * PrefixCache::kBlock, PrefixCache::kBlock);
  return {part.begin(), part.end()};
}
}  // namespace

std::vector<int64_t> PrefixCache::match(std::span<const int32_t> tokens, int64_t most, int64_t adapter) {
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
void PrefixCache::touch(const std::vector<int64_t>& chain) {
  ++now_;
  for (auto id = chain.rbegin(); id != chain.rend(); ++id) {
    Block& block = blocks_[*id];
    order_.splice(order_.begin(), order_, block.place);
    block.used_at = now_;
  }
}

std::vector<int64_t> PrefixCache::find(std::span<const int32_t> tokens, int64_t adapter) {
  if (tokens.empty()) return {};
  return match(tokens, (static_cast<int64_t>(tokens.size()) - 1) / kBlock, adapter);
}

std::vector<PrefixCache::NewBlock> PrefixCache::keep(std::span<const int32_t> tokens, int64_t adapter) {
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

// A block never used, or else the least recently used one that is not in use now. -1: none.
int64_t PrefixCache::free_block() {
  if (used_ < blocks()) return used_++;
  if (order_.empty() || blocks_[order_.back()].used_at == now_) return -1;
  const int64_t id = order_.back();
  order_.pop_back();
  by_tokens_.erase(blocks_[id].entry);
  return id;
}
}  // namespace linnet
