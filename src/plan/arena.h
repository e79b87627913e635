// Offsets for blocks that live at different times within one block of memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace linnet {

struct ArenaBlock {
  size_t bytes;
  int32_t first, last;  // alive from node `first` through node `last`
  size_t offset = 0;    // filled in
};

struct ArenaSize {
  size_t bytes;        // of the arena
  size_t lower_bound;  // the most bytes alive at one node: no placement can do better
};

// Largest blocks first, each at the lowest gap among those alive at the same time that is best filled by it.
ArenaSize place_blocks(std::vector<ArenaBlock>& blocks);

}  // namespace linnet
