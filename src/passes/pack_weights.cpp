#include "passes/pack_weights.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "ops/matmul/matmul_sizes.h"
#include "ops/matmul/panel_matmul.h"
#include "ops/movement/movement.h"
#include "passes/matcher.h"
#include "passes/parameter_part.h"
#include "passes/rewriter.h"

namespace linnet {
namespace {

using Place = std::pair<std::string, int64_t>;  // flat input, offset

bool moves_nothing(const Node& node) { return is(node, kReshape) || is(node, kSplit); }

// The panels that a node could read its second operand as; nothing if it could not.
std::optional<PanelsOf> panels_of(const Graph& graph, const Node& node, Precision precision) {
  if (!is(node, kMatmul)) return std::nullopt;
  const auto& attrs = node.attrs.as<MatmulAttrs>();
  const TensorType &a = graph.value(node.in[0]).type, &b = graph.value(node.in[1]).type;
  if (b.shape.rank() != 2 || b.dtype != DType::kF32 || attrs.trans_a || attrs.independent_rows) return std::nullopt;
  const auto [batch, m, n, k] = matmul_sizes(attrs, a.shape, b.shape);
  if (batch != 1 || !has_panels(m, n, k)) return std::nullopt;
  return PanelsOf{n, k, attrs.trans_b, precision};
}

bool are_alike(const PanelsOf& x, const PanelsOf& y) {
  return x.n == y.n && x.k == y.k && x.trans_b == y.trans_b && x.precision == y.precision;
}

// Each parameter that is read, with its panels if all that reads it could read them.
void add_readers(const Graph& graph, Precision precision, std::map<Place, std::optional<PanelsOf>>& found) {
  for (const Node& node : graph.nodes()) {
    if (moves_nothing(node)) continue;
    for (size_t i = 0; i < node.in.size(); ++i) {
      const std::optional<ParameterPart> part = parameter_part(graph, node.in[i]);
      if (!part) continue;
      const std::optional<PanelsOf> panels = i == 1 ? panels_of(graph, node, precision) : std::nullopt;
      const auto [entry, is_new] = found.try_emplace({part->flat, part->offset}, panels);
      if (!is_new && !(panels && entry->second && are_alike(*panels, *entry->second))) entry->second.reset();
    }
  }
  const auto leaves = [&](ValueId value) {
    if (const auto part = parameter_part(graph, value)) found[{part->flat, part->offset}].reset();
  };
  for (const GraphOutput& output : graph.outputs()) leaves(output.value);
  for (const StateUpdate& update : graph.updates()) leaves(update.value);
}

// A buffer that is also read as a whole.
bool is_read_whole(const Graph& graph, const std::string& flat) {
  for (const Node& node : graph.nodes())
    for (const ValueId in : node.in)
      for (const GraphInput& input : graph.inputs())
        if (input.value == in && input.name == flat && !is(node, kSplit)) return true;
  return false;
}

const PackedMatrix* find(std::span<const PackedMatrix> weights, const Graph& graph, ValueId value) {
  const std::optional<ParameterPart> part = parameter_part(graph, value);
  if (!part) return nullptr;
  const auto found = std::ranges::find_if(
      weights, [&](const PackedMatrix& weight) { return weight.flat == part->flat && weight.offset == part->offset; });
  return found == weights.end() ? nullptr : &*found;
}

}  // namespace

std::vector<PackedMatrix> packable_weights(std::span<const Graph> graphs, Precision precision, const Backend& backend) {
  // In other precisions a node of its own rounds the weight.
  if (!backend.device->is_host() || (precision != Precision::kF32 && precision != Precision::kBf16)) return {};
  std::map<Place, std::optional<PanelsOf>> found;
  for (const Graph& graph : graphs) add_readers(graph, precision, found);
  std::vector<PackedMatrix> weights;
  for (const auto& [place, panels] : found) {
    const auto reads_whole = [&flat = place.first](const Graph& graph) { return is_read_whole(graph, flat); };
    if (panels && std::ranges::none_of(graphs, reads_whole)) weights.push_back({place.first, place.second, *panels});
  }
  return weights;
}

Graph pack_weights(const Graph& graph, std::span<const PackedMatrix> weights) {
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    Node product = node;
    for (size_t i = 0; i < node.in.size() && !moves_nothing(node); ++i) {
      const PackedMatrix* weight = find(weights, graph, node.in[i]);
      if (!weight) continue;
      const std::optional<PanelsOf> panels = i == 1 ? panels_of(graph, node, weight->panels.precision) : std::nullopt;
      if (!panels || !are_alike(*panels, weight->panels) ||
          node.attrs.as<MatmulAttrs>().precision != weight->panels.precision)
        fail_internal("a packed weight is read by " + label_of(node) + ", which cannot read it");
      product.op = &kPanelMatmul;
    }
    rewriter.copy(product);
  }
  return rewriter.finish();
}

void pack(const PackedMatrix& weight, float* flat, ThreadPool& pool) {
  pack_panels(weight.panels, flat + weight.offset, pool);
}

}  // namespace linnet
