#include "plan/arena.h"

#include <algorithm>
#include <numeric>

namespace linnet {
namespace {

constexpr size_t kAlignment = 64;  // a cache line, and the widest vector

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool overlap(const ArenaBlock& a, const ArenaBlock& b) { return a.first <= b.last && b.first <= a.last; }

// The smallest gap between already placed neighbours (sorted by offset) that takes `bytes`.
size_t best_gap(const std::vector<const ArenaBlock*>& neighbours, size_t bytes) {
  size_t end = 0, best = SIZE_MAX, best_gap = SIZE_MAX;
  for (const ArenaBlock* block : neighbours) {
    if (block->offset > end && block->offset - end >= bytes && block->offset - end < best_gap) {
      best = end;
      best_gap = block->offset - end;
    }
    end = std::max(end, block->offset + aligned(block->bytes));
  }
  return best == SIZE_MAX ? end : best;
}

size_t most_alive(const std::vector<ArenaBlock>& blocks) {
  int32_t last = 0;
  for (const ArenaBlock& block : blocks) last = std::max(last, block.last);
  std::vector<size_t> starts(static_cast<size_t>(last) + 2), ends(static_cast<size_t>(last) + 2);
  for (const ArenaBlock& block : blocks) {
    starts[static_cast<size_t>(block.first)] += aligned(block.bytes);
    ends[static_cast<size_t>(block.last) + 1] += aligned(block.bytes);
  }
  size_t alive = 0, most = 0;
  for (size_t node = 0; node < starts.size(); ++node) {
    alive += starts[node];
    alive -= ends[node];
    most = std::max(most, alive);
  }
  return most;
}

}  // namespace

ArenaSize place_blocks(std::vector<ArenaBlock>& blocks) {
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return blocks[a].bytes > blocks[b].bytes; });
  std::vector<size_t> placed;
  size_t total = 0;
  for (size_t i : order) {
    std::vector<const ArenaBlock*> neighbours;
    for (size_t j : placed)
      if (overlap(blocks[i], blocks[j])) neighbours.push_back(&blocks[j]);
    std::sort(neighbours.begin(), neighbours.end(), [](auto* a, auto* b) { return a->offset < b->offset; });
    blocks[i].offset = best_gap(neighbours, aligned(blocks[i].bytes));
    total = std::max(total, blocks[i].offset + aligned(blocks[i].bytes));
    placed.push_back(i);
  }
  return {total, most_alive(blocks)};
}

}  // namespace linnet
