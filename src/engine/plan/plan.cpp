#include "engine/plan/plan.h"
#include <algorithm>
#include "engine/ir/op.h"

namespace linnet {
namespace {
// A larger workspace is placed in the arena for its node alone, as it seldom coincides with the peak. Smaller ones
// share a region, because placing thousands of them would take long and gain little.
constexpr size_t kOwnPlace = 16 << 20;

// A node whose results the next kLate nodes do not read may run beside up to kBeside followers, until the first reader;
// its operands and workspace keep their memory until then. Products for weight gradients are such nodes; alone they
// leave much of a GPU idle. One that moves more than kMostBeside bytes fills the GPU, and running it beside others
// slows both down (bench/NOTES.md, "The second minutes of a GPU").
constexpr NodeId kLate = 2, kBeside = 8;
constexpr size_t kMostBeside = 24 << 20;

struct ChosenKernels {
  std::vector<const Kernel*> kernels;   // by node
  size_t workspace_bytes = 0;           // shared
  std::map<NodeId, size_t> large = {};  // bytes of workspaces that have a place of their own
  // By node: the last one that it may run beside; kNone: it runs in order. Empty: all run in order.
  std::vector<NodeId> beside = {};
  size_t aside_bytes = 0;  // the workspace of those that run beside others, one after another

  NodeId end_of(NodeId node) const { return beside.empty() || beside[node] == kNone ? node : beside[node]; }
};

// `bytes`: workspaces, by node.
void choose_asides(const Graph& graph, const std::vector<size_t>& bytes, ChosenKernels& chosen) {
  std::vector<NodeId> next_read(graph.value_count(), graph.node_count());
  const auto read_of = [&](ValueId value) -> NodeId& { return next_read[root_of(graph, value).value]; };
  chosen.beside.assign(graph.node_count(), kNone);
  for (NodeId id = graph.node_count() - 1; id >= 0; --id) {
    const Node& node = graph.node(id);
    NodeId end = id + kBeside;
    size_t moved = sum_of<size_t>(node.in, [&](ValueId in) { return graph.value(in).type.bytes(); });
    for (const ValueId out : node.out) {
      end = std::min(end, read_of(out) - 1);
      moved += graph.value(out).type.bytes();
    }
    if (chosen.kernels[id]->may_run_aside && end >= id + kLate && moved <= kMostBeside) {
      chosen.beside[id] = end;
      chosen.aside_bytes = std::max(chosen.aside_bytes, bytes[id]);
    }
    for (const ValueId in : node.in) read_of(in) = id;
  }
}

ChosenKernels choose_kernels(const Graph& graph, const Backend& backend, const PlanOptions& options) {
  ChosenKernels chosen;
  std::vector<size_t> bytes;
  for (const Node& node : graph.nodes()) {
    const auto [in, out] = types_of(graph, node);
    const KernelQuery query{node, in, out, options.threads, backend.device};
    const Kernel& kernel = find_kernel(query, KernelSet::kFast, backend);
    chosen.kernels.push_back(&kernel);
    bytes.push_back(kernel.workspace ? kernel.workspace(query) : 0);
  }
  if (!backend.device->is_host()) choose_asides(graph, bytes, chosen);
  for (NodeId id = 0; id < graph.node_count(); ++id) {
    const size_t own = bytes[id];
    if (chosen.end_of(id) > id) continue;
    if (own > kOwnPlace) chosen.large[id] = own;
    else chosen.workspace_bytes = std::max(chosen.workspace_bytes, own);
  }
  return chosen;
}

// Blocks of the arena: every storage that is not an input (listed in `owner`), then the large workspaces by node, then
// the one workspace of all nodes that run beside others.
std::vector<ArenaBlock> arena_blocks(
    const Graph& graph, const StorageMap& storages, const ChosenKernels& chosen, std::vector<ValueId>& owner) {
  std::vector<ArenaBlock> blocks;
  std::map<ValueId, NodeId> kept;  // by storage: what is read beside later nodes
  NodeId first_aside = kNone, last_aside = kNone;
  for (NodeId id = 0; id < graph.node_count(); ++id) {
    const NodeId end = chosen.end_of(id);
    if (end == id) continue;
    if (first_aside == kNone) first_aside = id;
    last_aside = std::max(last_aside, end);
    for (const ValueId in : graph.node(id).in) {
      NodeId& last = kept[storages.storage_of(in)];
      last = std::max(last, end);
    }
  }
  for (ValueId id = 0; id < graph.value_count(); ++id) {
    if (storages.storage_of(id) != id || storages.is_input(id)) continue;
    const NodeId last = std::max(storages.last(id), kept[id]);
    blocks.push_back({graph.value(id).type.bytes(), std::min(storages.first(id), last), last});
    blocks.back().parts = storages.parts(id);
    owner.push_back(id);
  }
  for (const auto& [node, bytes] : chosen.large) blocks.push_back({bytes, node, node});
  if (chosen.aside_bytes > 0) blocks.push_back({chosen.aside_bytes, first_aside, last_aside});
  return blocks;
}

std::map<ValueId, size_t> place_storages(Plan& plan, const StorageMap& storages, const ChosenKernels& chosen) {
  std::vector<ValueId> owner;
  std::vector<ArenaBlock> blocks = arena_blocks(plan.graph, storages, chosen, owner);
  const ArenaSize size = place_blocks(blocks);
  plan.arena_bytes = size.bytes;
  plan.arena_lower_bound = size.lower_bound;
  std::map<ValueId, size_t> offset;
  for (size_t i = 0; i < owner.size(); ++i) offset[owner[i]] = blocks[i].offset;
  size_t next = owner.size();
  for (const auto& [node, bytes] : chosen.large) plan.workspace_in_arena[node] = blocks[next++].offset;
  if (chosen.aside_bytes > 0)
    for (NodeId id = 0; id < plan.graph.node_count(); ++id)
      if (chosen.end_of(id) > id) plan.workspace_in_arena[id] = blocks[next].offset;
  return offset;
}
}  // namespace

SharedRegions add_shared_regions(Store& store) {
  const RegionId arena = store.add_region("arena", MemoryKind::kActivations, 0);
  return {arena, store.add_region("workspace", MemoryKind::kWorkspace, 0)};
}

Plan make_plan(Graph graph, Store& store, const SharedRegions& shared, const PlanOptions& options) {
  Plan plan;
  plan.graph = std::move(graph);
  plan.threads = options.threads;
  const ChosenKernels chosen = choose_kernels(plan.graph, store.backend(), options);
  plan.kernels = chosen.kernels;
  plan.workspace_bytes = chosen.workspace_bytes;
  for (const NodeId end : chosen.beside) plan.aside.push_back(end != kNone);
  const StorageMap storages(plan.graph);
  const auto offset = place_storages(plan, storages, chosen);
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
  if (options.verify) verify_plan(plan, store, shared);
  return plan;
}

PlanSize plan_size(const Graph& graph, const Backend& backend, const PlanOptions& options, bool placed) {
  const StorageMap storages(graph);
  const ChosenKernels chosen = choose_kernels(graph, backend, options);
  std::vector<ValueId> owner;
  std::vector<ArenaBlock> blocks = arena_blocks(graph, storages, chosen, owner);
  return {placed ? place_blocks(blocks).bytes : most_alive(blocks), chosen.workspace_bytes};
}
}  // namespace linnet
