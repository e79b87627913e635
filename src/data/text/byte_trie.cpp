#include "data/text/byte_trie.h"
#include <algorithm>
#include <array>
#include <bit>
#include "base/fail.h"

namespace linnet {
namespace {
constexpr size_t kBlock = 256;  // base ^ byte stays within a block
constexpr size_t kMostOpen = 16, kMostFailures = 32;

using Bits = std::array<uint64_t, kBlock / 64>;

bool has(const Bits& bits, uint32_t i) { return bits[i / 64] >> (i % 64) & 1; }
void set(Bits& bits, uint32_t i) { bits[i / 64] |= uint64_t{1} << (i % 64); }
}  // namespace

class ByteTrie::Builder {
 public:
  Builder(std::vector<Unit>& units, const Keys& keys) : units_(units), keys_(keys) { build(); }

 private:
  struct Block {
    Bits taken = {}, bases = {};  // units that are a node, and bases that a node has
    size_t failures = 0;
  };
  // Keys [begin, end) share this node, a prefix of `depth` bytes.
  struct Step {
    uint32_t node;
    size_t begin, end, depth;
  };

  void build() {
    open_block();
    set(blocks_[0].taken, kRoot);
    std::vector<Step> steps = {{kRoot, 0, keys_.size(), 0}};
    std::vector<uint32_t> leaves;
    std::vector<unsigned char> labels;
    while (!steps.empty()) {
      Step step = steps.back();
      steps.pop_back();
      if (step.begin < step.end && keys_[step.begin].first.size() == step.depth)
        units_[step.node].value = static_cast<uint32_t>(keys_[step.begin++].second) & kNoValue;
      labels.clear();
      for (size_t i = step.begin; i < step.end; ++i) {
        const unsigned char label = label_of(i, step.depth);
        if (labels.empty() || labels.back() != label) labels.push_back(label);
      }
      if (labels.empty()) {
        leaves.push_back(step.node);
        continue;
      }
      const uint32_t base = location(labels);
      units_[step.node].base = base;
      for (size_t i = step.begin, k = 0; i < step.end; ++k) {
        const size_t begin = i;
        while (i < step.end && label_of(i, step.depth) == labels[k]) ++i;
        const uint32_t child = base ^ labels[k];
        units_[child].label = labels[k];
        steps.push_back({child, begin, i, step.depth + 1});
      }
    }
    fill_free_units();
    // Leaves lead to units that are no child of their base.
    const auto dead = static_cast<uint32_t>(units_.size());
    units_.resize(units_.size() + kBlock);
    for (uint32_t i = 0; i < kBlock; ++i) units_[dead + i].label = (i + 1) % kBlock;
    for (const uint32_t leaf : leaves) units_[leaf].base = dead;
  }

  unsigned char label_of(size_t key, size_t depth) const { return static_cast<unsigned char>(keys_[key].first[depth]); }

  void open_block() {
    if (open_.size() == kMostOpen) open_.erase(open_.begin());
    open_.push_back(blocks_.size());
    blocks_.emplace_back();
    units_.resize(blocks_.size() * kBlock);
  }

  // A base at which all children find room; marks them.
  uint32_t location(const std::vector<unsigned char>& labels) {
    for (size_t i = 0; i < open_.size(); ++i) {
      const size_t block = open_[i];
      if (const uint32_t base = base_in(blocks_[block], labels); base < kBlock) return take(block, base, labels);
      if (++blocks_[block].failures < kMostFailures) continue;
      open_.erase(open_.begin() + (i--));
    }
    open_block();
    return take(blocks_.size() - 1, base_in(blocks_.back(), labels), labels);
  }

  static uint32_t base_in(const Block& block, const std::vector<unsigned char>& labels) {
    for (size_t word = 0; word < block.taken.size(); ++word)
      for (uint64_t room = ~block.taken[word]; room != 0; room &= room - 1) {
        const uint32_t base =
            (64 * static_cast<uint32_t>(word) + static_cast<uint32_t>(std::countr_zero(room))) ^ labels[0];
        if (has(block.bases, base)) continue;
        if (std::none_of(labels.begin(), labels.end(), [&](unsigned char l) { return has(block.taken, base ^ l); }))
          return base;
      }
    return kBlock;
  }

  uint32_t take(size_t block, uint32_t base, const std::vector<unsigned char>& labels) {
    set(blocks_[block].bases, base);
    for (const unsigned char label : labels) set(blocks_[block].taken, base ^ label);
    return static_cast<uint32_t>(block * kBlock) + base;
  }

  // At most as many bases as units are used, so a free unit implies a free base. The root is nobody's child.
  void fill_free_units() {
    for (size_t b = 0; b < blocks_.size(); ++b) {
      uint32_t base = 0;
      while (base < kBlock && has(blocks_[b].bases, base)) ++base;
      for (uint32_t i = 0; i < kBlock && base < kBlock; ++i)
        if (!has(blocks_[b].taken, i) || (b == 0 && i == kRoot)) units_[b * kBlock + i].label = i ^ base;
    }
  }

  std::vector<Unit>& units_;
  const Keys& keys_;
  std::vector<Block> blocks_;
  std::vector<size_t> open_;  // blocks that may have room
};

ByteTrie::ByteTrie(Keys keys) {
  std::stable_sort(keys.begin(), keys.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  keys.erase(std::unique(keys.begin(), keys.end(), [](const auto& a, const auto& b) { return a.first == b.first; }),
      keys.end());
  if (!keys.empty() && keys[0].first.empty()) keys.erase(keys.begin());
  Builder(own_units_, keys);
  units_ = own_units_;
}

ByteTrie::ByteTrie(std::span<const Unit> units, int32_t values, const std::string& where) : units_(units) {
  const auto fits = [&](const Unit& unit) {
    return (unit.base | 0xFF) < units.size() && (unit.value == kNoValue || static_cast<int32_t>(unit.value) < values);
  };
  if (units.empty() || !std::all_of(units.begin(), units.end(), fits))
    fail_user(where, " is damaged: its trie leads outside of the pieces");
}
}  // namespace linnet
