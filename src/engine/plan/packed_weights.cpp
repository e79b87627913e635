#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include "engine/ir/op.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/quantized/quantized.h"
#include "engine/plan/plan.h"
#include "engine/plan/store.h"

namespace linnet {
namespace {
constexpr size_t kPanelAlignment = 64;

// How a node would read its second operand as panels.
struct PanelRead {
  PanelsOf panels;
  const Kernel* kernel;
};

// Empty if the node's kernel does not pack that operand.
std::optional<PanelRead> panel_read(const Plan& plan, NodeId id) {
  const std::string_view kernel = plan.kernels[id]->name;
  const Node& node = plan.graph.node(id);
  const auto [in, out] = types_of(plan.graph, node);
  const KernelQuery query{node, in, out, plan.threads, &cpu_device()};
  if (kernel == "gemm")
    if (const auto panels = panels_of(query)) return PanelRead{*panels, &kPanelMatmul};
  if (kernel == "quantized_gemm")
    if (const auto panels = quantized_panels_of(query)) return PanelRead{*panels, &kPanelQuantizedMatmul};
  return std::nullopt;
}

// A reshape or split whose results are views of its operand.
bool keeps_bytes(const Graph& graph, const Node& node) {
  return renames(node) && std::ranges::all_of(node.out, [&](ValueId out) {
    const auto& view = graph.value(out).view;
    return view && view->base == node.in[0];
  });
}

// What plans read of the parameters' regions.
class Reads {
 public:
  explicit Reads(std::set<RegionId> regions) : regions_(std::move(regions)) {}

  void add(const Plan& plan) {
    const Graph& graph = plan.graph;
    for (NodeId id = 0; id < graph.node_count(); ++id) {
      const Node& node = graph.node(id);
      if (keeps_bytes(graph, node)) continue;
      for (size_t i = 0; i < node.in.size(); ++i)
        if (is_parameter(plan, node.in[i])) {
          const auto read = i == 1 ? panel_read(plan, id) : std::nullopt;
          add(plan, node.in[i], read ? std::optional(read->panels) : std::nullopt);
        }
    }
    for (const ValueId result : results_of(graph)) add_whole(plan, result);
    for (const StateUpdate& update : graph.updates()) add_whole(plan, update.state);
  }

  // Locations and panels of what is read as panels alone and overlaps no other read.
  std::map<Location, PanelsOf> panels() const {
    std::map<Location, PanelsOf> chosen;
    RegionId region = -1;
    size_t end = 0;  // of what was read before, in the region
    for (const auto& [location, read] : reads_) {
      const size_t begin = location.offset;
      if (std::exchange(region, location.region) != location.region) end = 0;
      const bool is_apart = begin >= end;
      if (!is_apart && !chosen.empty())
        if (const auto& [last, panels] = *chosen.rbegin();
            last.region == region && last.offset + panels.bytes() > begin)
          chosen.erase(std::prev(chosen.end()));
      if (is_apart && read.panels && begin % kPanelAlignment == 0) chosen.emplace(location, *read.panels);
      end = std::max(end, read.end);
    }
    return chosen;
  }

 private:
  struct Read {
    size_t end;  // bytes
    std::optional<PanelsOf> panels;
  };

  bool is_parameter(const Plan& plan, ValueId value) const { return regions_.contains(plan.location[value].region); }

  void add_whole(const Plan& plan, ValueId value) {
    if (is_parameter(plan, value)) add(plan, value, std::nullopt);
  }

  void add(const Plan& plan, ValueId value, const std::optional<PanelsOf>& panels) {
    const TensorType& type = plan.graph.value(value).type;
    if (type.shape.elements() == 0) return;
    const Location& location = plan.location[value];
    const int64_t extent = strided_extent(type.shape, root_of(plan.graph, value).strides);
    const size_t end = location.offset + static_cast<size_t>(extent) * dtype_size(type.dtype);
    const auto [entry, is_new] = reads_.try_emplace(location, Read{end, panels});
    Read& read = entry->second;
    if (!is_new && !(end == read.end && panels && panels == read.panels))
      read = {std::max(end, read.end), std::nullopt};
  }

  const std::set<RegionId> regions_;
  std::map<Location, Read> reads_;  // by where they begin
};
}  // namespace

PackedWeights::PackedWeights(std::span<Plan* const> plans, const Store& store) {
  if (!store.device().is_host() || !store.has(state::kParameters)) return;
  std::set<RegionId> regions{store.find(state::kParameters, 0).region};
  const auto weight_of = [](const Plan& plan, NodeId id) { return plan.location[plan.graph.node(id).in[1]]; };
  for (const Plan* plan : plans)
    for (NodeId id = 0; id < plan->graph.node_count(); ++id)
      if (const Node& node = plan->graph.node(id);
          node.op == &kQuantizedMatmul && plan->graph.value(node.in[1]).producer == kNone)
        regions.insert(weight_of(*plan, id).region);
  Reads reads(std::move(regions));
  for (const Plan* plan : plans) reads.add(*plan);
  const std::map<Location, PanelsOf> chosen = reads.panels();
  for (const auto& [location, panels] : chosen) weights_.push_back({location, panels});
  for (Plan* plan : plans)
    for (NodeId id = 0; id < plan->graph.node_count(); ++id) {
      const auto read = panel_read(*plan, id);
      if (read && chosen.contains(weight_of(*plan, id))) plan->kernels[id] = read->kernel;
    }
}

void PackedWeights::pack(const Store& store, ThreadPool& pool) const {
  for (const auto& [location, panels] : weights_)
    pack_panels(panels, store.data(location.region) + location.offset, pool);
}
}  // namespace linnet
