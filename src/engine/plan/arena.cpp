#include <algorithm>
#include <functional>
#include <numeric>
#include "base/numbers.h"
#include "engine/plan/storage.h"

namespace linnet {
namespace {

constexpr size_t kAlignment = 256;  // of a kernel's workspace on a GPU (cuBLASLt); a cache line has 64

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
  if (block.parts.empty()) lines.push_back({0, round_up(block.bytes, kAlignment), block.first});
  for (ArenaPart part : block.parts) {
    part.begin = part.begin / kAlignment * kAlignment;
    part.end = round_up(part.end, kAlignment);
    while (!lines.empty() && lines.back().end > part.begin && part.first < lines.back().first) {
      lines.back().end = part.begin;
      if (lines.back().begin == lines.back().end) lines.pop_back();
    }
    if (!lines.empty()) part.begin = std::max(part.begin, lines.back().end);
    if (part.begin < part.end) lines.push_back(part);
  }
  return placed;
}

// Offsets that a block cannot have: strictly between `after` and `before`, because of one part of one neighbor.
struct Forbidden {
  int64_t after, before;
};

void forbid(const Placed& neighbor, const Placed& block, std::vector<Forbidden>& forbidden) {
  if (neighbor.last < block.first || block.last < neighbor.first) return;
  for (const ArenaPart& theirs : neighbor.parts)
    for (const ArenaPart& ours : block.parts) {
      if (neighbor.last < ours.first || block.last < theirs.first) continue;
      const auto at = static_cast<int64_t>(neighbor.offset);
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

struct Placement {
  std::vector<size_t> order, offsets;
  size_t bytes = 0;
};

// Places blocks one after another, in several orders, and keeps the smallest arena.
class Placer {
 public:
  explicit Placer(const std::vector<ArenaBlock>& blocks) {
    for (const ArenaBlock& block : blocks) {
      all_.push_back(in_lines(block));
      if (all_.back().parts.empty()) all_.back().parts.push_back({0, 0, block.first});
    }
    bound_ = most_alive(all_);
  }

  const Placement& run() {
    const auto bytes = [&](size_t i) { return all_[i].parts.back().end; };
    const auto lifetime = [&](size_t i) { return static_cast<size_t>(all_[i].last - all_[i].first) + 1; };
    try_order(by_descending(bytes));
    // Where gradients are one block, a layer's activations can lie in the bytes of the layers below it alone, so that
    // the lowest layer, whose activations live longest, chooses first.
    if (!is_least()) try_order(by_descending(lifetime));
    if (!is_least()) try_order(by_descending([&](size_t i) { return bytes(i) * lifetime(i); }));
    for (int round = 0; round < kRounds && !is_least(); ++round)
      if (!try_order(with_highest_first())) break;
    return best_;
  }
  size_t bound() const { return bound_; }

 private:
  static constexpr int kRounds = 12;

  bool is_least() const { return best_.bytes == bound_; }

  // Blocks with parts come first, since others lie in them.
  std::vector<size_t> by_descending(auto&& key) const {
    std::vector<size_t> order(all_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, std::greater{},
                             [&](size_t i) { return std::pair(all_[i].parts.size() > 1, key(i)); });
    return order;
  }

  // The order with the block that reaches the end of the arena before all others but those with parts.
  std::vector<size_t> with_highest_first() const {
    std::vector<size_t> order = best_.order;
    const auto highest =
        std::ranges::max_element(order, {}, [&](size_t i) { return best_.offsets[i] + all_[i].parts.back().end; });
    const auto first = std::ranges::find_if(order, [&](size_t i) { return all_[i].parts.size() == 1; });
    if (first < highest) std::rotate(first, highest, highest + 1);
    return order;
  }

  // Whether the arena becomes smaller.
  bool try_order(std::vector<size_t> order) {
    Placement made{std::move(order), std::vector<size_t>(all_.size())};
    for (auto i = made.order.begin(); i != made.order.end(); ++i) {
      forbidden_.clear();
      for (auto j = made.order.begin(); j != i; ++j) forbid(all_[*j], all_[*i], forbidden_);
      made.offsets[*i] = all_[*i].offset = tightest(forbidden_);
      made.bytes = std::max(made.bytes, all_[*i].offset + all_[*i].parts.back().end);
    }
    const bool smaller = best_.order.empty() || made.bytes < best_.bytes;
    if (smaller) best_ = std::move(made);
    return smaller;
  }

  std::vector<Placed> all_;
  std::vector<Forbidden> forbidden_;
  size_t bound_;
  Placement best_;
};

}  // namespace

size_t most_alive(const std::vector<ArenaBlock>& blocks) {
  std::vector<Placed> all;
  for (const ArenaBlock& block : blocks) all.push_back(in_lines(block));
  return most_alive(all);
}

ArenaSize place_blocks(std::vector<ArenaBlock>& blocks) {
  Placer placer(blocks);
  const Placement& placed = placer.run();
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i].offset = placed.offsets[i];
  return {placed.bytes, placer.bound()};
}

}  // namespace linnet
