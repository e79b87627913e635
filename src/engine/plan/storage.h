// A storage is a set of values, with their views, that use the same bytes one after another: a value and the one
// computed over it in place, a state and its update.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>
#include "engine/ir/graph.h"
#include "engine/plan/plan.h"

namespace linnet {
// Bytes [begin, end) of a block, in use from node `first` to the block's last.
struct ArenaPart {
  size_t begin, end;
  int32_t first;
};

struct ArenaBlock {
  size_t bytes;
  int32_t first, last;  // alive from node `first` through node `last`
  // The parts of a block that is filled piece by piece, such as the gradients of all parameters; they cover it. A
  // part's bytes are free before its first node. Empty: all of the block is alive from `first`.
  std::vector<ArenaPart> parts = {};
  size_t offset = 0;  // filled in
};

struct ArenaSize {
  size_t bytes;        // of the arena
  size_t lower_bound;  // the most bytes alive at one node: no placement can do better
};

size_t most_alive(const std::vector<ArenaBlock>& blocks);  // the most bytes of blocks alive at one node

// Places each block lowest in the tightest gap between blocks alive at the same time: largest blocks first, then in
// other orders while the arena exceeds the lower bound. Keeps the smallest arena.
ArenaSize place_blocks(std::vector<ArenaBlock>& blocks);

// Bytes [begin, end) of a value's root, touched at a node.
struct Access {
  NodeId node;
  size_t begin, end;
  ValueId value;
};

class StorageMap {
 public:
  StorageMap(const Graph& graph, bool reuse);

  // The root value that represents the storage of `id` (a graph input, if one is in it).
  ValueId storage_of(ValueId id) const;
  bool is_input(ValueId storage) const { return graph_.value(storage).producer == kNone; }
  // First write and last read; outputs live to the end.
  NodeId first(ValueId storage) const;
  NodeId last(ValueId storage) const;
  // Its bytes, split by the node that first writes them.
  std::vector<ArenaPart> parts(ValueId storage) const;
  const std::vector<Access>& writes(ValueId storage) const { return writes_[storage_of(storage)]; }
  // Updates whose value is not in the state's own storage.
  const std::vector<StateUpdate>& copies() const { return copies_; }

 private:
  void collect_accesses();
  void place_updates();
  void overwrite_in_place();
  void merge(ValueId into, ValueId from);
  bool may_share(ValueId early, ValueId late) const;
  bool overwrites(NodeId node, const Access& read, const Access& write) const;

  const Graph& graph_;
  std::vector<ValueId> parent_;              // union-find over roots
  std::vector<std::vector<Access>> reads_;   // by storage
  std::vector<std::vector<Access>> writes_;  // by storage
  std::vector<StateUpdate> copies_;
};

// Bytes [offset, offset + bytes) are in use from node `first` through node `last`.
struct ArenaTenant {
  ValueId value;  // whose memory it is; values computed in place over it are not listed apart
  size_t offset, bytes;
  NodeId first, last;
};

// All tenants of the plan's arena, by their first node. A value that is filled piece by piece, such as the flat
// gradient, has a tenant per piece. `arena`: the region the plan was made with.
std::vector<ArenaTenant> arena_tenants(const Plan& plan, RegionId arena);

// In use while each node runs.
std::vector<size_t> live_bytes(const Plan& plan, const std::vector<ArenaTenant>& tenants);
}  // namespace linnet
