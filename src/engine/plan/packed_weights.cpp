#include "engine/plan/packed_weights.h"

#include <algorithm>
#include <map>
#include <optional>

#include "engine/ir/op.h"
#include "engine/ops/matmul/matmul_sizes.h"
#include "engine/plan/state_names.h"

namespace linnet {
namespace {

constexpr size_t kPanelAlignment = 64;

bool are_alike(const PanelsOf& x, const PanelsOf& y) {
  return x.n == y.n && x.k == y.k && x.trans_b == y.trans_b && x.precision == y.precision;
}

// The second operand of a node as panels, if its kernel is the one that would pack it.
std::optional<PanelsOf> panels_of(const Plan& plan, NodeId id) {
  if (std::string_view(plan.kernels[static_cast<size_t>(id)]->name) != "gemm") return std::nullopt;
  const Node& node = plan.graph.node(id);
  const auto [in, out] = types_of(plan.graph, node);
  return linnet::panels_of({node, in, out, plan.threads, &cpu_device()});
}

// A reshape or a split whose results are places in its operand.
bool keeps_bytes(const Graph& graph, const Node& node) {
  const Algebra algebra = algebra_of(node);
  return (algebra == Algebra::kReshape || algebra == Algebra::kSplit) &&
         std::ranges::all_of(node.out, [&](ValueId out) {
           const auto& view = graph.value(out).view;
           return view && view->base == node.in[0];
         });
}

// What plans read of the region that has the parameters.
class Reads {
 public:
  explicit Reads(RegionId region) : region_(region) {}

  void add(const Plan& plan) {
    const Graph& graph = plan.graph;
    for (NodeId id = 0; id < graph.node_count(); ++id) {
      const Node& node = graph.node(id);
      if (keeps_bytes(graph, node)) continue;
      for (size_t i = 0; i < node.in.size(); ++i)
        if (is_parameter(plan, node.in[i])) add(plan, node.in[i], i == 1 ? panels_of(plan, id) : std::nullopt);
    }
    for (const GraphOutput& output : graph.outputs()) add_whole(plan, output.value);
    for (const StateUpdate& update : graph.updates()) add_whole(plan, update.state), add_whole(plan, update.value);
  }

  // The beginnings and panels of those that are read as panels alone and overlap nothing else that is read.
  std::map<size_t, PanelsOf> panels() const {
    std::map<size_t, PanelsOf> chosen;
    size_t end = 0;
    for (const auto& [begin, read] : reads_) {
      const bool is_apart = begin >= end;
      if (!is_apart && !chosen.empty() && chosen.rbegin()->first + bytes(chosen.rbegin()->second) > begin)
        chosen.erase(std::prev(chosen.end()));
      if (is_apart && read.panels && begin % kPanelAlignment == 0) chosen.emplace(begin, *read.panels);
      end = std::max(end, read.end);
    }
    return chosen;
  }

 private:
  struct Read {
    size_t end;  // bytes
    std::optional<PanelsOf> panels;
  };

  static size_t bytes(const PanelsOf& panels) { return static_cast<size_t>(panels.n * panels.k) * sizeof(float); }

  bool is_parameter(const Plan& plan, ValueId value) const {
    return plan.location[static_cast<size_t>(value)].region == region_;
  }

  void add_whole(const Plan& plan, ValueId value) {
    if (is_parameter(plan, value)) add(plan, value, std::nullopt);
  }

  void add(const Plan& plan, ValueId value, const std::optional<PanelsOf>& panels) {
    const TensorType& type = plan.graph.value(value).type;
    if (type.shape.elements() == 0) return;
    const Shape strides = root_of(plan.graph, value).strides;
    int64_t last = 0;
    for (int axis = 0; axis < type.shape.rank(); ++axis) last += (type.shape[axis] - 1) * strides[axis];
    const size_t begin = plan.location[static_cast<size_t>(value)].offset;
    const size_t end = begin + static_cast<size_t>(last + 1) * dtype_size(type.dtype);
    const auto [entry, is_new] = reads_.try_emplace(begin, Read{end, panels});
    Read& read = entry->second;
    if (!is_new && !(end == read.end && panels && read.panels && are_alike(*panels, *read.panels)))
      read = {std::max(end, read.end), std::nullopt};
  }

  const RegionId region_;
  std::map<size_t, Read> reads_;  // by the offset where they begin
};

}  // namespace

PackedWeights::PackedWeights(std::span<Plan* const> plans, const Store& store) {
  if (!store.device().is_host() || !store.has(state::kParameters)) return;
  const RegionId region = store.find(state::kParameters, 0).region;
  Reads reads(region);
  for (const Plan* plan : plans) reads.add(*plan);
  const std::map<size_t, PanelsOf> chosen = reads.panels();
  for (const auto& [offset, panels] : chosen) weights_.push_back({{region, offset}, panels});
  for (Plan* plan : plans)
    for (NodeId id = 0; id < plan->graph.node_count(); ++id) {
      if (!panels_of(*plan, id)) continue;
      const Location& weight = plan->location[static_cast<size_t>(plan->graph.node(id).in[1])];
      if (weight.region == region && chosen.contains(weight.offset))
        plan->kernels[static_cast<size_t>(id)] = &kPanelMatmul;
    }
}

void PackedWeights::pack(const Store& store, ThreadPool& pool) const {
  for (const auto& [location, panels] : weights_)
    pack_panels(panels, reinterpret_cast<float*>(store.data(location.region) + location.offset), pool);
}

}  // namespace linnet
