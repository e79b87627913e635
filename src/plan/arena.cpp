#include "plan/arena.h"

#include <algorithm>
#include <numeric>

namespace linnet {
namespace {

constexpr size_t kAlignment = 64;  // a cache line, and the widest vector

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// A block as the search sees it: parts in whole cache lines, each alive from its own first node to the common last.
struct Placed {
  std::vector<ArenaPart> parts;
  int32_t first, last;
  size_t offset = 0;
};

// A line that two parts share belongs to the earlier of them.
Placed in_lines(const ArenaBlock& block) {
  Placed placed{{}, block.first, block.last};
  std::vector<ArenaPart>& lines = placed.parts;
  if (block.parts.empty()) lines.push_back({0, aligned(block.bytes), block.first});
  for (ArenaPart part : block.parts) {
    part.begin = part.begin / kAlignment * kAlignment;
    part.end = aligned(part.end);
    while (!lines.empty() && lines.back().end > part.begin && part.first < lines.back().first) {
      lines.back().end = part.begin;
      if (lines.back().begin == lines.back().end) lines.pop_back();
    }
    if (!lines.empty()) part.begin = std::max(part.begin, lines.back().end);
    if (part.begin < part.end) lines.push_back(part);
  }
  return placed;
}

// Offsets that a block cannot have: strictly between `after` and `before`, because of one part of one neighbour.
struct Forbidden {
  int64_t after, before;
};

void forbid(const Placed& neighbour, const Placed& block, std::vector<Forbidden>& forbidden) {
  if (neighbour.last < block.first || block.last < neighbour.first) return;
  for (const ArenaPart& theirs : neighbour.parts)
    for (const ArenaPart& ours : block.parts) {
      if (neighbour.last < ours.first || block.last < theirs.first) continue;
      const auto at = static_cast<int64_t>(neighbour.offset);
      forbidden.push_back({at + static_cast<int64_t>(theirs.begin) - static_cast<int64_t>(ours.end),
                           at + static_cast<int64_t>(theirs.end) - static_cast<int64_t>(ours.begin)});
    }
}

// The lowest allowed offset of the range of offsets that leaves least to spare.
size_t tightest(std::vector<Forbidden>& forbidden) {
  std::sort(forbidden.begin(), forbidden.end(), [](auto& a, auto& b) { return a.after < b.after; });
  int64_t free = 0, best = -1, best_slack = INT64_MAX;
  for (const Forbidden& range : forbidden) {
    if (range.after >= free && range.after - free < best_slack) {
      best = free;
      best_slack = range.after - free;
    }
    free = std::max(free, range.before);
  }
  return static_cast<size_t>(best < 0 ? free : best);
}

size_t most_alive(const std::vector<Placed>& blocks) {
  int32_t last = 0;
  for (const Placed& block : blocks) last = std::max(last, block.last);
  std::vector<size_t> starts(static_cast<size_t>(last) + 2), ends(static_cast<size_t>(last) + 2);
  for (const Placed& block : blocks)
    for (const ArenaPart& part : block.parts) {
      starts[static_cast<size_t>(part.first)] += part.end - part.begin;
      ends[static_cast<size_t>(block.last) + 1] += part.end - part.begin;
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

size_t most_alive(const std::vector<ArenaBlock>& blocks) {
  std::vector<Placed> all;
  for (const ArenaBlock& block : blocks) all.push_back(in_lines(block));
  return most_alive(all);
}

ArenaSize place_blocks(std::vector<ArenaBlock>& blocks) {
  std::vector<Placed> all;
  for (const ArenaBlock& block : blocks) all.push_back(in_lines(block));
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return blocks[a].bytes > blocks[b].bytes; });
  size_t total = 0;
  std::vector<Forbidden> forbidden;
  for (auto i = order.begin(); i != order.end(); ++i) {
    forbidden.clear();
    for (auto j = order.begin(); j != i; ++j) forbid(all[*j], all[*i], forbidden);
    all[*i].offset = blocks[*i].offset = tightest(forbidden);
    total = std::max(total, all[*i].offset + aligned(blocks[*i].bytes));
  }
  return {total, most_alive(all)};
}

}  // namespace linnet
