#include <algorithm>
#include <array>
#include <map>
#include "base/fail.h"
#include "base/text.h"
#include "engine/ir/op.h"
#include "engine/ops/collective/collective.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {
struct Pass {
  const char* name;
  Graph (*run)(const Graph&, const PassOptions&);
  bool (*wanted)(const PassOptions&) = [](const PassOptions&) { return true; };
};

template <auto rewrite> Graph pass(const Graph& graph, const PassOptions& options) {
  if constexpr (std::is_invocable_v<decltype(rewrite), const Graph&, const Backend&>)
    return rewrite(graph, *options.backend);
  else return rewrite(graph);
}

// Rounding is decided before anything is recomputed. Recomputation comes next, so that all other passes fuse both
// computations alike. Losses are fused before another node can come between a loss and its gradient; norms take their
// sums before products add to them; epilogues come before sums, so that a bias joins its product before the product
// joins a sum; quantized weights follow, so those fusions see plain products. Views are last: they fix layouts.
constexpr std::array kPasses{
    Pass{"round_shared", pass<round_shared>, [](const PassOptions& o) { return o.storage_type == DType::kBF16; }},
    Pass{"recompute_blocks", [](const Graph& g, const PassOptions& o) { return recompute_blocks(g, o.blocks); },
        [](const PassOptions& o) { return !o.blocks.empty(); }},
    Pass{"lower_precision",
        [](const Graph& g, const PassOptions& o) {
          return lower_precision(g, o.precision, o.attention_precision.value_or(o.precision), o.as_stored);
        },
        [](const PassOptions& o) {
          return o.as_stored || o.precision != Precision::kF32 ||
                 o.attention_precision.value_or(o.precision) != Precision::kF32;
        }},
    Pass{"independent_rows", pass<independent_rows>, [](const PassOptions& o) { return o.independent_rows; }},
    Pass{"fuse_loss", pass<fuse_loss>},
    Pass{"recompute", pass<recompute>, [](const PassOptions& o) { return o.recompute; }},
    Pass{"fuse_residual_norm", pass<fuse_residual_norm>}, Pass{"fuse_batch_norm", pass<fuse_batch_norm>},
    Pass{"fuse_pool_gradient", pass<fuse_pool_gradient>}, Pass{"fuse_epilogue", pass<fuse_epilogue>},
    Pass{"fuse_convolution", pass<fuse_convolution>},
    Pass{"pack_filters", [](const Graph& g, const PassOptions& o) { return pack_filters(g, o.filters); },
        [](const PassOptions& o) { return !o.filters.empty(); }},
    Pass{"fuse_embedding_scale", pass<fuse_embedding_scale>}, Pass{"fuse_accumulate", pass<fuse_accumulate>},
    Pass{"fuse_bias_gradient", pass<fuse_bias_gradient>}, Pass{"join_norm_sums", pass<join_norm_sums>},
    Pass{"group_weight_gradients", pass<group_weight_gradients>,
        [](const PassOptions& o) { return o.storage_type == DType::kBF16; }},
    Pass{"quantize_products", pass<quantize_products>, [](const PassOptions& o) { return o.int8; }},
    Pass{"fuse_quantized", pass<fuse_quantized>},
    Pass{"fuse_int8_convolution", pass<fuse_int8_convolution>,
        [](const PassOptions& o) { return o.backend->device->is_host(); }},
    Pass{"fuse_pointwise", pass<fuse_pointwise>}, Pass{"fuse_sums", pass<fuse_sums>},
    Pass{"cast_to_storage_type",
        [](const Graph& g, const PassOptions& o) { return cast_to_storage_type(g, *o.storage_type, *o.backend); },
        [](const PassOptions& o) { return o.storage_type.has_value(); }},
    Pass{"make_views", pass<make_views>}};

std::map<std::string, int> count_nodes(const Graph& graph) {
  std::map<std::string, int> counts;
  for (const Node& node : graph.nodes()) ++counts[label_of(node)];
  return counts;
}

int count_views(const Graph& graph) {
  return sum_of<int>(graph.value_count(), [&](ValueId id) { return graph.value(id).view.has_value(); });
}

// Counts nodes of `after` beyond those of `before` by label, elementwise ones with functions, or new views.
std::vector<std::string> new_nodes(const Graph& before, const Graph& after) {
  std::vector<std::string> changes;
  const auto old = count_nodes(before);
  for (const auto& [name, count] : count_nodes(after))
    if (const int more = count - find_or(old, name, 0); more > 0)
      changes.push_back(name + " x " + std::to_string(more));
  if (const int views = count_views(after); views > count_views(before))
    changes.push_back(std::to_string(views) + " of " + std::to_string(after.value_count()) + " values are views");
  return changes;
}
}  // namespace

std::vector<std::string> pass_names() { return mapped<std::string>(kPasses, &Pass::name); }

Graph optimize(Graph graph, const PassOptions& options, std::vector<PassReport>* report) {
  const auto names = pass_names();
  for (const std::string& name : options.off)
    if (!contains(names, name)) fail_user("there is no pass ", name);
  graph = remove_dead_code(graph);
  for (const Pass& pass : kPasses) {
    if (!pass.wanted(options) || options.off.contains(pass.name)) continue;
    Graph next = pass.run(graph, options);
    if (report) report->push_back({pass.name, new_nodes(graph, next)});
    graph = std::move(next);
    if (options.verify) verify(graph);
  }
  return graph;
}

Graph remove_dead_code(const Graph& graph) {
  const std::vector<bool> kept = ancestors_of(graph, results_of(graph));
  Rewriter rewriter(graph);
  for (NodeId id = 0; id < graph.node_count(); ++id) {
    const Node& node = graph.node(id);
    if (!kept[id]) continue;
    if (is(node, kShare))  // it has told the backward pass what it had to
      rewriter.map(node.out[0], rewriter[node.in[0]]);
    else rewriter.copy(node);
  }
  return rewriter.finish();
}

Graph decompose(const Graph& graph, bool (*keep)(const OpDef& op)) {
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    if (!node.op->decompose || (keep && keep(*node.op))) {
      rewriter.copy(node);
      continue;
    }
    rewriter.graph().set_scope(node.scope);
    rewriter.graph().set_origin(node.where);
    rewriter.map_results(node, node.op->decompose({rewriter.graph(), node, rewriter.inputs_of(node)}));
    rewriter.graph().set_origin(std::nullopt);
  }
  return rewriter.finish();
}

// Products of a decoding graph: a row's result must not depend on how many other requests there are.

Graph independent_rows(const Graph& graph) {
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    const auto change = node.op->with_independent_rows;
    rewriter.replace(node, *node.op, rewriter.inputs_of(node), change ? change(node.attrs) : node.attrs);
  }
  return rewriter.finish();
}

Graph run_early(const Graph& graph, NodeId first) {
  // By node: the node before `first` that it follows.
  std::vector<NodeId> after(graph.node_count());
  for (NodeId id = 0; id < graph.node_count(); ++id) {
    NodeId& place = after[id];
    place = id < first ? id : -1;
    if (id < first) continue;
    for (const ValueId in : graph.node(id).in)
      if (const NodeId producer = graph.value(in).producer; producer != kNone) place = std::max(place, after[producer]);
  }
  // A node without operands goes before its first reader.
  for (NodeId id = first; id < graph.node_count(); ++id) {
    if (!graph.node(id).in.empty()) continue;
    NodeId place = graph.node_count();
    for (const Node& reader : graph.nodes()) {
      const bool reads = std::ranges::any_of(reader.in, [&](ValueId in) { return graph.value(in).producer == id; });
      if (reads) place = std::min(place, after[&reader - graph.nodes().data()]);
    }
    after[id] = place;
  }
  std::vector<NodeId> order = numbers_below<NodeId>(after.size());
  std::ranges::stable_sort(order, {}, [&](NodeId id) { return after[id]; });
  Rewriter rewriter(graph);
  for (const NodeId id : order) rewriter.copy(graph.node(id));
  return rewriter.finish();
}

std::string fusion_report(const std::vector<PassReport>& reports) {
  std::string text;
  for (const PassReport& report : reports)
    if (!report.fused.empty()) text += report.name + ": " + joined(report.fused) + "\n";
  return text;
}
}  // namespace linnet
