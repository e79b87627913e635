#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>
#include "engine/ops/conv2d/conv2d.h"
#include "engine/ops/movement/movement.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {
// The part of a flat buffer of parameters that a value is, as filters without sizes. Parameters are results of a split
// of a graph input, reshaped before they are read. Values that are computed once are inputs themselves.
std::optional<PackedFilters> parameter_part(const Graph& graph, ValueId value) {  // also of a reshaped part
  value = before_reshapes(graph, value);
  const Node* split = producer_of(graph, value);
  if (split && !is(split, kSplit)) return std::nullopt;
  const auto input = std::ranges::find(graph.inputs(), split ? split->in[0] : value, &GraphInput::value);
  if (input == graph.inputs().end()) return std::nullopt;
  if (!split) return is_computed_once(input->name) ? std::optional(PackedFilters{input->name, 0, {}}) : std::nullopt;
  if (graph.value(input->value).type.shape.rank() != 1) return std::nullopt;
  int64_t offset = 0;
  for (const ValueId out : split->out) {
    if (out == value) return PackedFilters{input->name, offset, {}};
    offset += graph.value(out).type.shape.elements();
  }
  return std::nullopt;
}

std::optional<PackedFilters> packable(const Graph& graph, const Node& node) {
  std::optional<PackedFilters> filters = is(node, kConv2d) ? parameter_part(graph, node.in[1]) : std::nullopt;
  if (!filters || graph.value(node.in[0]).type.dtype != DType::kF32) return std::nullopt;
  const auto shape = [&](ValueId value) { return graph.value(value).type.shape; };
  filters->sizes = conv2d_sizes(shape(node.in[0]), shape(node.in[1]), shape(node.out[0]), node.attrs.as<Conv2dAttrs>());
  filters->floats = packed_filter_floats(filters->sizes);
  return filters->floats > 0 ? filters : std::nullopt;
}

// Whether one of the list can share its packed filters.
bool has_like(std::span<const PackedFilters> list, const PackedFilters& filters) {
  return std::ranges::any_of(list, [&](const PackedFilters& other) {
    return other.flat == filters.flat && other.offset == filters.offset &&
           convolution_method(other.sizes) == convolution_method(filters.sizes);
  });
}

std::vector<PackedFilters> packable_in(const Graph& graph) {
  std::vector<PackedFilters> found;
  for (const Node& node : graph.nodes())
    if (std::optional<PackedFilters> filters = packable(graph, node); filters && !has_like(found, *filters))
      found.push_back(std::move(*filters));
  // Filters that two convolutions want packed in different ways are packed in every run.
  std::map<std::string, int> ways;
  for (const PackedFilters& filters : found) ++ways[filters.input()];
  std::erase_if(found, [&](const PackedFilters& filters) { return ways[filters.input()] > 1; });
  return found;
}
}  // namespace

std::vector<PackedFilters> packable_filters(std::span<const Graph> graphs, const Backend& backend) {
  if (graphs.empty() || !backend.device->is_host()) return {};
  std::vector<PackedFilters> found = packable_in(graphs[0]);
  for (const Graph& graph : graphs.subspan(1)) {
    const std::vector<PackedFilters> other = packable_in(graph);
    std::erase_if(found, [&](const PackedFilters& filters) { return !has_like(other, filters); });
  }
  return found;
}

Graph pack_filters(const Graph& graph, std::span<const PackedFilters> filters) {
  Rewriter rewriter(graph);
  std::map<std::string, Tensor> inputs;
  for (const Node& node : graph.nodes()) {
    const std::optional<PackedFilters> own = packable(graph, node);
    if (!own || !has_like(filters, *own)) {
      rewriter.copy(node);
      continue;
    }
    Tensor& packed = inputs[own->input()];
    if (!packed.defined()) packed = rewriter.graph().input(own->input(), {DType::kF32, {own->floats}});
    auto attrs = node.attrs.as<Conv2dAttrs>();
    attrs.packed = true;
    std::vector<Tensor> in = rewriter.inputs_of(node);
    in.push_back(packed);
    rewriter.replace(node, kConv2d, in, attrs);
  }
  return rewriter.finish();
}

void pack(const PackedFilters& filters, const float* flat, float* packed, ThreadPool& pool) {
  const size_t bytes =
      convolution_workspace({.sizes = filters.sizes, .packed = true}, ConvolutionPass::kForward, pool.size());
  std::vector<std::byte> workspace(bytes + 64);  // aligned to 64
  std::byte* const aligned = workspace.data() + (64 - reinterpret_cast<uintptr_t>(workspace.data()) % 64) % 64;
  pack_convolution_filters(filters.sizes, ConvolutionPass::kForward, flat + filters.offset, packed, aligned, pool);
}
}  // namespace linnet
