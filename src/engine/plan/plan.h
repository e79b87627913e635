// A plan is a graph with every byte placed: the kernel of each node, and the location of each value.
#pragma once
#include <map>
#include <string>
#include <vector>
#include "engine/ir/graph.h"
#include "engine/ops/kernel.h"
#include "engine/plan/store.h"

namespace linnet {
// Arena and workspace are in the store too; plans that never run at once share them.
struct SharedRegions {
  RegionId arena, workspace;
};

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

struct PlanOptions {
  int threads = 1;
  KernelSet kernels = KernelSet::kFast;
  bool reuse_memory = true;  // off: every value has its own bytes (the arena's test oracle)
  bool verify = true;        // off only where a plan is made for its size and never run
};

// Places every value of an optimized graph, grows the shared regions, and verifies the result. Inputs must be bound in
// the store.
Plan make_plan(Graph graph, Store& store, const SharedRegions& shared, const PlanOptions& options);

// The size of a graph's plan. `placed` false: arena_bytes is only a lower bound, which is found faster.
struct PlanSize {
  size_t arena_bytes, workspace_bytes;
};
PlanSize plan_size(const Graph& graph, const Backend& backend, const PlanOptions& options, bool placed);

// Replays the plan on a map of bytes: every read must find what its producer wrote. Throws Error(kInternal).
void verify_plan(const Plan& plan, const Store& store, const SharedRegions& shared);
}  // namespace linnet
