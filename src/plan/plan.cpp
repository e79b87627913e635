#include "plan/plan.h"

#include <algorithm>
#include <map>

#include "ir/op.h"
#include "plan/arena.h"
#include "plan/storage.h"

namespace linnet {
namespace {

struct ChosenKernels {
  std::vector<const Kernel*> kernels;  // by node
  size_t workspace_bytes = 0;
};

ChosenKernels choose_kernels(const Graph& graph, const Backend& backend, const PlanOptions& options) {
  ChosenKernels chosen;
  for (const Node& node : graph.nodes()) {
    std::vector<TensorType> in, out;
    for (ValueId id : node.in) in.push_back(graph.value(id).type);
    for (ValueId id : node.out) out.push_back(graph.value(id).type);
    const KernelQuery query{node, in, out, options.threads, backend.device};
    const Kernel& kernel = find_kernel(query, options.kernels, backend);
    chosen.kernels.push_back(&kernel);
    if (kernel.workspace) chosen.workspace_bytes = std::max(chosen.workspace_bytes, kernel.workspace(query));
  }
  return chosen;
}

// Blocks of the arena: every storage that is not an input. `owner` gets the storage of each.
std::vector<ArenaBlock> arena_blocks(const Graph& graph, const StorageMap& storages, bool reuse,
                                     std::vector<ValueId>& owner) {
  std::vector<ArenaBlock> blocks;
  for (ValueId id = 0; id < graph.value_count(); ++id) {
    if (storages.storage_of(id) != id || storages.is_input(id)) continue;
    const NodeId last = reuse ? storages.last(id) : graph.node_count();
    const NodeId first = reuse ? storages.first(id) : 0;
    blocks.push_back({graph.value(id).type.bytes(), std::min(first, last), last});
    if (reuse) blocks.back().parts = storages.parts(id);
    owner.push_back(id);
  }
  return blocks;
}

std::map<ValueId, size_t> place_storages(Plan& plan, const StorageMap& storages, bool reuse) {
  std::vector<ValueId> owner;
  std::vector<ArenaBlock> blocks = arena_blocks(plan.graph, storages, reuse, owner);
  const ArenaSize size = place_blocks(blocks);
  plan.arena_bytes = size.bytes;
  plan.arena_lower_bound = size.lower_bound;
  std::map<ValueId, size_t> offset;
  for (size_t i = 0; i < blocks.size(); ++i) offset[owner[i]] = blocks[i].offset;
  return offset;
}

}  // namespace

Plan make_plan(Graph graph, Store& store, const SharedRegions& shared, const PlanOptions& options) {
  Plan plan;
  plan.graph = std::move(graph);
  plan.threads = options.threads;
  ChosenKernels chosen = choose_kernels(plan.graph, store.backend(), options);
  plan.kernels = std::move(chosen.kernels);
  plan.workspace_bytes = chosen.workspace_bytes;
  const StorageMap storages(plan.graph, options.reuse_memory);
  const auto offset = place_storages(plan, storages, options.reuse_memory);
  plan.copies = storages.copies();

  std::map<ValueId, Location> bound;
  for (const GraphInput& input : plan.graph.inputs())
    bound[input.value] = store.find(input.name, plan.graph.value(input.value).type.bytes());
  for (ValueId id = 0; id < plan.graph.value_count(); ++id) {
    const Root root = root_of(plan.graph, id);
    const ValueId storage = storages.storage_of(root.value);
    Location location = storages.is_input(storage) ? bound.at(storage) : Location{shared.arena, offset.at(storage)};
    location.offset += static_cast<size_t>(root.offset) * dtype_size(plan.graph.value(id).type.dtype);
    plan.location.push_back(location);
  }
  store.grow_region(shared.arena, plan.arena_bytes);
  store.grow_region(shared.workspace, plan.workspace_bytes);
  if (options.verify) verify_plan(plan, store);
  return plan;
}

PlanSize plan_size(const Graph& graph, const Backend& backend, const PlanOptions& options, bool placed) {
  const StorageMap storages(graph, options.reuse_memory);
  std::vector<ValueId> owner;
  std::vector<ArenaBlock> blocks = arena_blocks(graph, storages, options.reuse_memory, owner);
  return {placed ? place_blocks(blocks).bytes : most_alive(blocks),
          choose_kernels(graph, backend, options).workspace_bytes};
}

}  // namespace linnet
