// A plan is a graph with every byte placed: the kernel of each node, and the location of each value.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>
#include "engine/ir/graph.h"
#include "engine/kernels/gemm/gemm.h"
#include "engine/ops/kernel.h"
#include "engine/plan/store.h"

namespace linnet {
// Arena and workspace are in the store too; plans that never run at once share them.
struct SharedRegions {
  RegionId arena, workspace;
};
SharedRegions add_shared_regions(Store& store);

struct Plan {
  Graph graph;
  std::vector<Location> location;      // by value
  std::vector<const Kernel*> kernels;  // by node
  // For nodes with a large workspace: its offset in the arena, free while they run. Others share the workspace region.
  std::map<NodeId, size_t> workspace_in_arena;
  // By node: whether it may run beside the nodes that follow it (Device::aside); its operands and workspace then keep
  // their memory for some of these. Empty: none may.
  std::vector<bool> aside;
  std::vector<StateUpdate> copies;  // updates that could not be computed in place: done at the end
  size_t arena_bytes = 0, arena_lower_bound = 0, workspace_bytes = 0;
  int threads = 1;  // the workspace is enough for a pool of so many
};

using NamedPlans = std::map<std::string, const Plan*>;

// The plans of a micro-batch's training: one for each pass, or `forward` for both.
struct StepPlans {
  const Plan *forward = nullptr, *backward = nullptr;
};

struct PlanOptions {
  int threads = 1;
  bool verify = true;  // off only where a plan is made for its size and never run
};

// Places every value of an optimized graph, grows the shared regions, and verifies the result. Inputs must be bound in
// the store.
Plan make_plan(Graph graph, Store& store, const SharedRegions& shared, const PlanOptions& options);

// The size of a graph's plan. `placed` false: arena_bytes is only a lower bound, which is found faster.
struct PlanSize {
  size_t arena_bytes, workspace_bytes;
  size_t bytes() const { return arena_bytes + workspace_bytes; }
};
PlanSize plan_size(const Graph& graph, const Backend& backend, const PlanOptions& options, bool placed);

// Replays the plan on a map of bytes: every read must find what its producer wrote. Throws Error(kInternal).
void verify_plan(const Plan& plan, const Store& store, const SharedRegions& shared);

// Weights of linear layers, packed once and in place for plans with constant parameters: packing them again in every
// product takes 7 to 12% of an encoder's time, more the fewer rows there are. Order: construct, make executors of the
// plans, load parameters into the store, pack().
class PackedWeights {
 public:
  PackedWeights() = default;
  // Chooses the weights and lets the plans' products read panels of them (pack_panels()), with the same
  // bits. `plans`: all that read the store's "parameters", before executors are made of them.
  //
  // Chosen are weights that only products read, each of which can read panels: no embeddings or heads tied to them, and
  // nothing that a product of few rows reads. None if the store's device is no CPU.
  PackedWeights(std::span<Plan* const> plans, const Store& store);

  // Call it each time after parameters were loaded; only the plans may then use the chosen parameters.
  void pack(const Store& store, ThreadPool& pool) const;
  size_t size() const { return weights_.size(); }

 private:
  struct Weight {
    Location location;
    PanelsOf panels;
  };
  std::vector<Weight> weights_;
};

// A storage is a set of values, with their views, that use the same bytes one after another: a value and the one
// computed over it in place, a state and its update.

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
  explicit StorageMap(const Graph& graph);

  // The root value that represents the storage of `id` (a graph input, if one is in it).
  ValueId storage_of(ValueId id) const;
  bool is_input(ValueId storage) const { return graph_.value(storage).producer == kNone; }
  // First write and last read; outputs live to the end.
  NodeId first(ValueId storage) const;
  NodeId last(ValueId storage) const;
  std::vector<ArenaPart> parts(ValueId storage) const;  // its bytes, split by the node that first writes them
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

// In use while each of `nodes` nodes runs.
std::vector<size_t> live_bytes(const std::vector<ArenaTenant>& tenants, NodeId nodes);
}  // namespace linnet
