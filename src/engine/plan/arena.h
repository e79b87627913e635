// Offsets for blocks that live at different times within one block of memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace linnet {

// Bytes [begin, end) of a block, in use from node `first` to the block's last.
struct ArenaPart {
  size_t begin, end;
  int32_t first;
};

struct ArenaBlock {
  size_t bytes;
  int32_t first, last;  // alive from node `first` through node `last`
  // Where a block is filled piece by piece, as the gradients of all parameters are: its parts, which cover it. Before a
  // part's first node its bytes are others' to use. Empty: all of it is alive from `first`.
  std::vector<ArenaPart> parts = {};
  size_t offset = 0;  // filled in
};

struct ArenaSize {
  size_t bytes;        // of the arena
  size_t lower_bound;  // the most bytes alive at one node: no placement can do better
};

// The most bytes of blocks that are alive at one node.
size_t most_alive(const std::vector<ArenaBlock>& blocks);

// Each block at the lowest place of the tightest gap that those alive at the same time leave: largest blocks first,
// then in other orders as long as the arena is larger than the lower bound; the smallest arena is kept.
ArenaSize place_blocks(std::vector<ArenaBlock>& blocks);

}  // namespace linnet
